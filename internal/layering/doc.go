// Package layering holds the test that keeps the import table of ARCHITECTURE.md true: packages import downwards only, and
// every third-party module has one owner. It has no other code; open layering_test.go for the table.
package layering
