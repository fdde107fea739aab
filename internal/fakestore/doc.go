// Package fakestore is object stores for tests: the requests of S3, Google Cloud Storage and Azure Blob Storage that this program
// makes, over HTTP, with conditions, uploads in parts and lists in pages; and whatever goes wrong, by a test's own hand.
//
// It is imported by tests only, keeps everything in memory, and checks no signature. What real servers say is seen by
// scripts/objectstores.sh. Open server.go first.
package fakestore
