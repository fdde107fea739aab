package fakestore

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Server is one store with one bucket.
type Server struct {
	// Bucket is the one that exists.
	Bucket string
	// Page is how many entries a list gives at once.
	Page int
	// Deaf makes a server that takes no notice of conditions, as older ones of S3 do.
	Deaf bool

	http  *httptest.Server
	serve func(http.ResponseWriter, *http.Request)

	mu        sync.Mutex // guards everything below
	intercept func(w http.ResponseWriter, r *http.Request) bool
	objects   map[string]object // by full name
	uploads   map[string]*upload
	last      int // version or upload that was given out
}

type object struct {
	data    []byte
	sum     string // as its writer stated it
	version string
}

// upload is what came of an object so far.
type upload struct {
	name  string
	about gsAbout
	sum   string
	when  condition
	size  int64
	parts map[int][]byte
	blob  map[string][]byte
	done  bool // the object is there
}

type condition struct{ none, match string }

// New serves one of s3, gs and az until the test ends.
func New(t testing.TB, scheme string) *Server {
	s := &Server{Bucket: "bucket", Page: 3, objects: map[string]object{}, uploads: map[string]*upload{}}
	s.serve = map[string]func(http.ResponseWriter, *http.Request){"s3": s.s3, "gs": s.gs, "az": s.az}[scheme]
	if s.serve == nil {
		t.Fatalf("fakestore: no such service: %s", scheme)
	}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		intercept := s.intercept
		s.mu.Unlock()
		if intercept == nil || !intercept(w, r) {
			s.serve(w, r)
		}
	}))
	t.Cleanup(s.http.Close)
	return s
}

// URL is where it listens.
func (s *Server) URL() string { return s.http.URL }

// Serve answers a request as if none were intercepted.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request) { s.serve(w, r) }

// Intercept puts f before every request; f answers it itself when it returns true. nil = none.
func (s *Server) Intercept(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// Break ends a connection with nothing more said, after so many bytes of the request's body were read.
func Break(w http.ResponseWriter, r *http.Request, after int64) {
	_, _ = io.CopyN(io.Discard, r.Body, after)
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

// Names is every object there is, in order.
func (s *Server) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Data is the bytes of an object; nil where there is none.
func (s *Server) Data(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[name].data
}

// Set puts an object as somebody else would, with no sum stated.
func (s *Server) Set(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = object{data: data, version: s.next()}
}

// Remove deletes an object as somebody else would.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
}

// Uploads is how many uploads in parts were begun and neither completed nor ended.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, u := range s.uploads {
		if !u.done {
			n++
		}
	}
	return n
}

// next gives a version out. The caller holds mu.
func (s *Server) next() string {
	s.last++
	return strconv.Itoa(s.last + 1_000_000)
}

// put stores an object where its condition holds.
func (s *Server) put(name string, data []byte, sum string, when condition) (object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, there := s.objects[name]
	if !s.Deaf && (when.none != "" && there || when.match != "" && (!there || old.version != when.match)) {
		return object{}, false
	}
	o := object{data: data, sum: sum, version: s.next()}
	s.objects[name] = o
	return o, true
}

func (s *Server) object(name string) (object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	return o, ok
}

// page lists the names with a prefix after one, and whether there are more.
func (s *Server) page(prefix, after string) (names []string, more bool) {
	for _, name := range s.Names() {
		if !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if len(names) == s.Page {
			return names, true
		}
		names = append(names, name)
	}
	return names, false
}

func (s *Server) begin(u *upload) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id = "upload-" + s.next()
	s.uploads[id] = u
	return id
}

// take ends an upload; nil where there is none.
func (s *Server) take(id string) *upload {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	delete(s.uploads, id)
	return u
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
