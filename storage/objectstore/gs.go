package objectstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// objects is a place at Google Cloud Storage, by its JSON API. Generations are the versions.
type objects struct {
	place
	client    *http.Client
	base      string // https://storage.googleapis.com
	tries     tries
	partBytes int64
	unsigned  string // why there are no credentials; "" = there are
}

const (
	gsHost   = "https://storage.googleapis.com"
	gsScope  = "https://www.googleapis.com/auth/devstorage.read_write"
	gsFields = "name,size,generation,metadata"
)

// openGS takes the application's default credentials of Google: GOOGLE_APPLICATION_CREDENTIALS, gcloud's own, or the machine's.
// STORAGE_EMULATOR_HOST names a server for tests, which wants none.
func openGS(ctx context.Context, cfg Config, at place) (*objects, error) {
	o := &objects{place: at, base: gsHost, tries: triesOf(cfg), partBytes: cfg.PartBytes / chunkUnit * chunkUnit}
	plain := &http.Client{Transport: newTransport(cfg.Idle, nil), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	o.client = plain
	if host := os.Getenv("STORAGE_EMULATOR_HOST"); host != "" {
		if !strings.Contains(host, "://") {
			host = "http://" + host
		}
		o.base = strings.TrimSuffix(host, "/")
		return o, nil
	}
	// The tokens are asked for all through a run: their context must not be one that ends sooner.
	ctx = context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient, plain)
	found, err := google.FindDefaultCredentials(ctx, gsScope)
	if err != nil {
		o.unsigned, _, _ = strings.Cut(err.Error(), "\n")
		return o, nil
	}
	o.client = &http.Client{Transport: &oauth2.Transport{Source: found.TokenSource, Base: plain.Transport}, CheckRedirect: plain.CheckRedirect}
	return o, nil
}

// chunkUnit is what the chunks of a resumable upload are multiples of, but for the last.
const chunkUnit = 256 << 10

// gsObject is an object as the service describes it; numbers are texts there.
type gsObject struct {
	Name       string            `json:"name"`
	Size       string            `json:"size"`
	Generation string            `json:"generation"`
	Metadata   map[string]string `json:"metadata"`
}

func (o *objects) object(g gsObject) Object {
	n, _ := strconv.ParseInt(g.Size, 10, 64)
	return Object{Key: o.key(g.Name), Bytes: n, SHA256: g.Metadata[metaSum], Version: g.Generation}
}

// url is that of an object, or of the list where key is "".
func (o *objects) url(key string, query url.Values) string {
	u := o.base + "/storage/v1/b/" + url.PathEscape(o.bucket) + "/o"
	if key != "" {
		u += "/" + url.PathEscape(o.name(key))
	}
	return u + "?" + query.Encode()
}

// ask makes one request once. The caller closes the body of the answer, which has a status below 300, or 308.
func (o *objects) ask(ctx context.Context, op, key, method, url string, body io.Reader, header http.Header, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, noAnswer(op, key, err)
	}
	if req.ContentLength = size; size == 0 {
		req.Body = http.NoBody
	}
	for name, v := range header {
		req.Header[name] = v
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return nil, o.unanswered(op, key, err)
	}
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusPermanentRedirect {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, o.refusal(op, key, resp)
}

// unanswered tells a token that was refused from a service that was not reached.
func (o *objects) unanswered(op, key string, err error) error {
	e := noAnswer(op, key, err)
	var token *oauth2.RetrieveError
	if errors.As(err, &token) && token.Response != nil && !mayPass(token.Response.StatusCode, "") {
		e.Kind, e.Err = ErrDenied, fmt.Errorf("no token for the credentials: %s", cmp.Or(token.ErrorCode, token.Response.Status))
	}
	return e
}

func (o *objects) refusal(op, key string, resp *http.Response) error {
	var said struct {
		Error struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	_ = json.Unmarshal(text, &said) // an answer in another form has its status
	e := &Error{Op: op, Key: key, Status: resp.StatusCode}
	if len(said.Error.Errors) > 0 {
		e.Code = said.Error.Errors[0].Reason
	}
	e.Kind = kindOf(e.Status, e.Code)
	if e.Kind == ErrNotFound && strings.Contains(said.Error.Message, "bucket does not exist") {
		e.Kind = ErrNoBucket
	}
	switch {
	case e.Kind == ErrDenied && o.unsigned != "":
		e.Err = errors.New(o.unsigned)
	case said.Error.Message != "" && (e.Kind == nil || e.Kind == ErrDenied):
		e.Err = errors.New(said.Error.Message)
	}
	return e
}

// describe reads the object that an answer describes.
func (o *objects) describe(op, key string, resp *http.Response) (Object, error) {
	defer resp.Body.Close()
	var g gsObject
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&g); err != nil {
		return Object{}, noAnswer(op, key, err)
	}
	return o.object(g), nil
}

func (when Condition) query(q url.Values) url.Values {
	if when.Absent {
		q.Set("ifGenerationMatch", "0")
	}
	if when.Version != "" {
		q.Set("ifGenerationMatch", when.Version)
	}
	q.Set("fields", gsFields)
	return q
}

func (o *objects) Put(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (Object, error) {
	check, err := md5Of(body, 0, size)
	if err != nil {
		return Object{}, err
	}
	about, err := json.Marshal(map[string]any{
		"name": o.name(key), "contentType": "application/octet-stream", "md5Hash": base64.StdEncoding.EncodeToString(check), "metadata": map[string]string{metaSum: sum}})
	if err != nil {
		return Object{}, err
	}
	put := o.putWhole
	if size > o.partBytes {
		put = o.putParts
	}
	made, err := put(ctx, key, body, size, about, when)
	if errors.Is(err, ErrConflict) {
		return settled(ctx, o, key, size, sum, err)
	}
	made.Key, made.Bytes, made.SHA256 = key, size, sum
	return made, err
}

func (o *objects) uploadURL(kind string, when Condition) string {
	return o.base + "/upload/storage/v1/b/" + url.PathEscape(o.bucket) + "/o?" + when.query(url.Values{"uploadType": {kind}}).Encode()
}

// putWhole sends what the object is and its bytes in one request; the service compares them with the MD5.
func (o *objects) putWhole(ctx context.Context, key string, body io.ReaderAt, size int64, about []byte, when Condition) (made Object, err error) {
	const edge = "tranche-6b1f0c2e9d"
	head := fmt.Appendf(nil, "--%s\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n%s\r\n--%s\r\nContent-Type: application/octet-stream\r\n\r\n", edge, about, edge)
	tail := fmt.Appendf(nil, "\r\n--%s--\r\n", edge)
	header := http.Header{"Content-Type": {"multipart/related; boundary=" + edge}}
	err = o.tries.do(ctx, func() error {
		all := io.MultiReader(bytes.NewReader(head), io.NewSectionReader(body, 0, size), bytes.NewReader(tail))
		resp, err := o.ask(ctx, "put", key, http.MethodPost, o.uploadURL("multipart", when), all, header, int64(len(head)+len(tail))+size)
		if err != nil {
			return err
		}
		made, err = o.describe("put", key, resp)
		return err
	})
	return made, err
}

// putParts sends an object in chunks, one after the other, as the service wants them. It is there when the last one is answered; an
// upload that fails is cancelled.
func (o *objects) putParts(ctx context.Context, key string, body io.ReaderAt, size int64, about []byte, when Condition) (made Object, err error) {
	var session string
	header := http.Header{"Content-Type": {"application/json; charset=UTF-8"}, "X-Upload-Content-Length": {strconv.FormatInt(size, 10)}}
	err = o.tries.do(ctx, func() error {
		resp, err := o.ask(ctx, "begin to put", key, http.MethodPost, o.uploadURL("resumable", when), bytes.NewReader(about), header, int64(len(about)))
		if err != nil {
			return err
		}
		session = resp.Header.Get("Location")
		return resp.Body.Close()
	})
	if err != nil {
		return Object{}, err
	}
	c, still := cut(size, o.partBytes), 0
	for at := int64(0); at < size && err == nil; {
		was := at
		if at, made, err = o.chunk(ctx, key, session, body, at, min(c.each, size-at), size); at > was {
			still = 0
		} else if still++; err == nil && still == o.tries.attempts {
			err = &Error{Op: "put", Key: key, Err: fmt.Errorf("the service stays at byte %d", at)}
		}
	}
	if err != nil {
		return Object{}, errors.Join(err, o.cancel(ctx, session))
	}
	return made, nil
}

// chunk sends bytes from at on and returns where the service wants to go on: after a failure it is asked.
func (o *objects) chunk(ctx context.Context, key, session string, body io.ReaderAt, at, length, size int64) (next int64, made Object, err error) {
	failed := false
	err = o.tries.do(ctx, func() error {
		from, n := at, length
		asked := fmt.Sprintf("bytes %d-%d/%d", from, from+n-1, size)
		if failed {
			n, asked = 0, fmt.Sprintf("bytes */%d", size)
		}
		failed = true
		resp, err := o.ask(ctx, "put a part of", key, http.MethodPut, session, io.NewSectionReader(body, from, n), http.Header{"Content-Range": {asked}}, n)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusPermanentRedirect {
			next = size
			made, err = o.describe("put a part of", key, resp)
			return err
		}
		next = held(resp.Header.Get("Range"))
		return resp.Body.Close()
	})
	return next, made, err
}

// held is how many bytes a session has, by the range that it names; 0 where it names none.
func held(ranged string) int64 {
	_, last, _ := strings.Cut(ranged, "-")
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil {
		return 0
	}
	return n + 1
}

// cancel ends a session, also where the caller's context has ended; the service forgets others after a week.
func (o *objects) cancel(ctx context.Context, session string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	resp, err := o.ask(ctx, "abort an upload", "", http.MethodDelete, session, http.NoBody, nil, 0)
	var e *Error
	if errors.As(err, &e) && (e.Status == 499 || e.Status == http.StatusNotFound || e.Status == http.StatusGone) {
		return nil // 499 is how the service says that it did
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (o *objects) Get(ctx context.Context, key string) (io.ReadCloser, Object, error) {
	at, err := o.Stat(ctx, key)
	if err != nil {
		return nil, at, err
	}
	var body io.ReadCloser
	err = o.tries.do(ctx, func() error {
		resp, err := o.ask(ctx, "get", key, http.MethodGet, o.url(key, url.Values{"alt": {"media"}, "generation": {at.Version}}), http.NoBody, nil, 0)
		if err == nil {
			body = resp.Body
		}
		return err
	})
	return body, at, err
}

func (o *objects) Stat(ctx context.Context, key string) (at Object, err error) {
	err = o.tries.do(ctx, func() error {
		resp, err := o.ask(ctx, "look for", key, http.MethodGet, o.url(key, url.Values{"fields": {gsFields}}), http.NoBody, nil, 0)
		if err != nil {
			return err
		}
		at, err = o.describe("look for", key, resp)
		return err
	})
	return at, err
}

func (o *objects) List(ctx context.Context) ([]Object, error) {
	var list []Object
	for token := ""; ; {
		var page struct {
			Items []gsObject `json:"items"`
			Next  string     `json:"nextPageToken"`
		}
		err := o.tries.do(ctx, func() error {
			q := url.Values{"prefix": {o.folder()}, "fields": {"items(" + gsFields + "),nextPageToken"}}
			if token != "" {
				q.Set("pageToken", token)
			}
			resp, err := o.ask(ctx, "list", "", http.MethodGet, o.url("", q), http.NoBody, nil, 0)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			page.Items, page.Next = nil, ""
			if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
				return noAnswer("list", "", err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, g := range page.Items {
			list = append(list, o.object(g))
		}
		if token = page.Next; token == "" {
			return list, nil
		}
	}
}

func (o *objects) Delete(ctx context.Context, key string) error {
	return o.tries.do(ctx, func() error {
		resp, err := o.ask(ctx, "delete", key, http.MethodDelete, o.url(key, nil), http.NoBody, nil, 0)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil:
			return err
		}
		return resp.Body.Close()
	})
}

// Sweep has nothing to do: sessions that were left end after a week, and nobody lists them.
func (o *objects) Sweep(context.Context) error { return nil }
