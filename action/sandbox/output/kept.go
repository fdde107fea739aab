package output

import "tranche/action/sandbox"

// kept is the beginning and the end of a stream.
type kept struct {
	half  int    // bytes of each
	head  []byte // the first
	tail  []byte // the last, as a ring once it is full
	next  int    // where the ring goes on
	total int64
}

// newKept keeps so many bytes in all.
func newKept(keep int) kept {
	if keep <= 0 {
		keep = sandbox.DefaultKeep
	}
	return kept{half: keep / 2}
}

func (k *kept) add(p []byte) {
	k.total += int64(len(p))
	n := min(len(p), k.half-len(k.head))
	k.head = append(k.head, p[:n]...)
	if p = p[n:]; len(p) >= k.half {
		k.tail, k.next = append(k.tail[:0], p[len(p)-k.half:]...), 0
		return
	}
	n = min(len(p), k.half-len(k.tail))
	k.tail = append(k.tail, p[:n]...)
	for p = p[n:]; len(p) > 0; p = p[n:] {
		n = copy(k.tail[k.next:], p)
		k.next = (k.next + n) % k.half
	}
}

// take returns what is kept and begins anew.
func (k *kept) take() sandbox.Output {
	out := sandbox.Output{Head: k.head, Total: k.total}
	if len(k.tail) > 0 {
		out.Tail = append(append(make([]byte, 0, len(k.tail)), k.tail[k.next:]...), k.tail[:k.next]...)
	}
	*k = kept{half: k.half}
	return out
}
