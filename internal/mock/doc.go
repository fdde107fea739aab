// Package mock is a scripted OpenAI-compatible server for tests: it does exactly what a test tells it to, down to single
// writes on the socket, and remembers every request it saw.
//
// It is imported by tests only. It does not imitate an inference engine (package inference/enginesim does) and judges
// nothing: what came in is recorded, and the test decides. Open server.go first; reply.go holds what an answer can be.
package mock
