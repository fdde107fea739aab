package usergrade

import "sync"

// kept takes all that is written and keeps its beginning, or its end.
type kept struct {
	limit int // bytes
	tail  bool

	mu   sync.Mutex
	data []byte // guarded by mu
}

// Write takes all of p and fails never.
func (k *kept) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(p)
	if !k.tail {
		k.data = append(k.data, p[:min(n, k.limit-len(k.data))]...)
		return n, nil
	}
	if n > k.limit {
		p = p[n-k.limit:]
	}
	if over := len(k.data) + len(p) - k.limit; over > 0 {
		k.data = append(k.data[:0], k.data[over:]...)
	}
	k.data = append(k.data, p...)
	return n, nil
}

func (k *kept) bytes() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]byte(nil), k.data...)
}
