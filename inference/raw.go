package inference

import (
	"bytes"
	"compress/flate"
	"io"
	"sync"

	"tranche/episode"
)

// maxRawBytes is the most that is kept of one raw answer, bytes.
const maxRawBytes = 4 << 20

// keeper passes a body through and keeps the beginning of it.
type keeper struct {
	r    io.Reader
	held bytes.Buffer
	seen int64 // bytes that passed
	most int   // bytes that are held
}

func (k *keeper) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	k.seen += int64(n)
	k.held.Write(p[:min(n, k.most-k.held.Len())])
	return n, err
}

// deflaters lends writers that deflate: each has tables of more than half a megabyte.
type deflaters struct{ pool sync.Pool }

func (d *deflaters) deflate(body []byte) []byte {
	w, ok := d.pool.Get().(*flate.Writer)
	if !ok {
		w, _ = flate.NewWriter(nil, flate.BestSpeed) // only a level that does not exist is an error
	}
	defer d.pool.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	_, _ = w.Write(body) // a buffer takes everything
	_ = w.Close()
	return bytes.Clone(out.Bytes())
}

// rawOf is the raw answer as the answer that a fault was.
func (a *answer) rawOf(c episode.Class) *episode.Raw {
	if a.raw == nil {
		return nil
	}
	raw := *a.raw
	raw.Class = c
	return &raw
}

// raw is what the keeper kept, without our own key.
func (e *Endpoint) raw(k *keeper, status int) *episode.Raw {
	body := e.redact(k.held.Bytes())
	return &episode.Raw{
		Status: int16(status), Bytes: k.seen + int64(len(body)-k.held.Len()), Held: int64(len(body)), Deflated: e.deflaters.deflate(body),
	}
}
