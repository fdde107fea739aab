package inference

import (
	"bufio"
	"errors"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
	"testing/iotest"
)

// unchunked reads a body, and what lies behind it.
func unchunked(r io.Reader) (body, rest string, err error) {
	buffered := bufio.NewReader(r)
	got, err := io.ReadAll(&chunks{r: buffered})
	behind, _ := io.ReadAll(buffered)
	return string(got), string(behind), err
}

func TestChunks(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	for name, c := range map[string]struct {
		in, want, rest string
		err            error
	}{
		"two":                    {"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde", "", nil},
		"what is behind":         {"1\r\na\r\n0\r\n\r\nHTTP/1.1", "a", "HTTP/1.1", nil},
		"none":                   {"0\r\n\r\n", "", "", nil},
		"long":                   {"11170\r\n" + long + "\r\n0\r\n\r\n", long, "", nil},
		"extensions and blanks":  {"3;a=b;c \r\nabc\r\n00002 \t\r\nde\r\n0;x\r\n\r\n", "abcde", "", nil},
		"capitals":               {"A\r\n0123456789\r\n0\r\n\r\n", "0123456789", "", nil},
		"trailers":               {"1\r\na\r\n0\r\nX: y\r\nZ: w\r\n\r\nnext", "a", "next", nil},
		"cut in the size":        {"3", "", "", io.ErrUnexpectedEOF},
		"cut in the data":        {"3\r\nab", "ab", "", io.ErrUnexpectedEOF},
		"cut behind the data":    {"3\r\nabc", "abc", "", io.ErrUnexpectedEOF},
		"cut before the last":    {"3\r\nabc\r\n", "abc", "", io.ErrUnexpectedEOF},
		"cut in the trailers":    {"0\r\n", "", "", io.ErrUnexpectedEOF},
		"nothing":                {"", "", "", io.ErrUnexpectedEOF},
		"no size":                {"\r\n", "", "", errChunk},
		"no number":              {"x\r\n", "", "", errChunk},
		"a sign":                 {"-1\r\n", "", "", errChunk},
		"too large":              {"fffffffffffffffff\r\n", "", "", errChunk},
		"the largest":            {"ffffffffffffffff\r\nabc", "abc", "", io.ErrUnexpectedEOF},
		"a bare line end":        {"1\na\r\n0\r\n\r\n", "", "", errChunk},
		"a return in the size":   {"1\r;\r\na\r\n0\r\n\r\n", "", "", errChunk},
		"more data than said":    {"1\r\nab\r\n0\r\n\r\n", "a", "", errChunk},
		"a size without an end":  {strings.Repeat("0", 5000), "", "", errChunk},
		"extensions and no data": {strings.Repeat("1;"+strings.Repeat("x", 3000)+"\r\na\r\n", 9), "aaaaa", "", errChunkExcess},
	} {
		for form, r := range map[string]io.Reader{"at once": strings.NewReader(c.in), "byte by byte": iotest.OneByteReader(strings.NewReader(c.in))} {
			body, rest, err := unchunked(r)
			if body != c.want || !errors.Is(err, c.err) || err == nil && rest != c.rest {
				t.Errorf("%s, %s: %.50q behind it %.50q, %v; want %.50q, %.50q, %v", name, form, body, rest, err, c.want, c.rest, c.err)
			}
		}
	}
}

// FuzzChunks holds the reader to that of net/http, which it is never more lenient than, and to itself byte by byte.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{"3\r\nabc\r\n0\r\n\r\n", "1;x\r\na\r\n0\r\nA: b\r\n\r\nrest", "2\r\na", "0\n\n", "f\r\n\r\n\r\n", "00\r\n\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		body, rest, err := unchunked(strings.NewReader(in))
		slow, slowRest, slowErr := unchunked(iotest.OneByteReader(strings.NewReader(in)))
		if body != slow || (err == nil) != (slowErr == nil) || err == nil && rest != slowRest {
			t.Fatalf("%q behind it %q, %v; byte by byte %q, %q, %v", body, rest, err, slow, slowRest, slowErr)
		}
		theirs, theirErr := io.ReadAll(httputil.NewChunkedReader(strings.NewReader(in)))
		if err == nil && (theirErr != nil || body != string(theirs)) || !strings.HasPrefix(string(theirs), body) {
			t.Fatalf("%q, %v; net/http reads %q, %v", body, err, theirs, theirErr)
		}
	})
}
