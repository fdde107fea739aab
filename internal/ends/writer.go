package ends

import "sync"

// Writer keeps one end of what is written to it, and never fails: for what a process prints, which its command writes from a goroutine of
// its own.
type Writer struct {
	mu   sync.Mutex
	ends Ends // guarded by mu
}

// KeepHead keeps the first bytes that are written.
func KeepHead(bytes int) *Writer { return &Writer{ends: Ends{first: bytes}} }

// KeepTail keeps the last bytes that are written.
func KeepTail(bytes int) *Writer { return &Writer{ends: Ends{last: bytes}} }

// Write takes all of p.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends.Add(p)
	return len(p), nil
}

// Bytes is a copy of what is kept so far.
func (w *Writer) Bytes() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(append([]byte(nil), w.ends.Head()...), w.ends.Tail()...)
}
