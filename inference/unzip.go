package inference

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// unzip has a packed answer read as what it holds. Nobody asked for one: no Accept-Encoding is sent; gateways exist that pack all the same.
func unzip(resp *http.Response) {
	switch strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))) {
	case "gzip", "x-gzip":
		resp.Body, resp.ContentLength = &gunzip{packed: resp.Body}, -1
	}
}

// gunzip unpacks as it is read, so that a stream comes as it is sent.
type gunzip struct {
	packed io.ReadCloser
	plain  *gzip.Reader // nil = nothing was read yet
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.plain == nil {
		z, err := gzip.NewReader(g.packed)
		if err != nil {
			return 0, notPacked(err)
		}
		g.plain = z
	}
	n, err := g.plain.Read(p)
	return n, notPacked(err)
}

// notPacked names an answer that is not what its Content-Encoding says. The errors of the connection stay what they are.
func notPacked(err error) error {
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || strings.HasPrefix(fmt.Sprint(err), "flate:") {
		return &malformedError{fmt.Errorf("it says that it is packed with gzip: %w", err)}
	}
	return err
}

func (g *gunzip) Close() error { return g.packed.Close() }
