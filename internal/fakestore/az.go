package fakestore

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Account and Key are what a server of Azure is asked with; the key is checked by nobody.
const Account = "devaccount"

// Key is in base64.
func Key() string { return base64.StdEncoding.EncodeToString([]byte("the key of a fake account")) }

func azError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("x-ms-error-code", code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code><Message>said the fake</Message></Error>", code)
}

// az answers /CONTAINER and /CONTAINER/BLOB.
func (s *Server) az(w http.ResponseWriter, r *http.Request) {
	container, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	switch {
	case container != s.Bucket:
		azError(w, 404, "ContainerNotFound")
	case name == "":
		s.azList(w, q.Get("prefix"), q.Get("marker"))
	case r.Method == http.MethodPut && q.Get("comp") == "block":
		s.azBlock(w, r, name, q.Get("blockid"))
	case r.Method == http.MethodPut && q.Get("comp") == "blocklist":
		s.azCommit(w, r, name)
	default:
		s.azBlob(w, r, name)
	}
}

// azBody reads a body and compares it with its MD5.
func azBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	b, err := io.ReadAll(r.Body)
	sum := md5.Sum(b)
	if err != nil || r.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]) {
		azError(w, 400, "Md5Mismatch")
		return nil, false
	}
	return b, true
}

func (s *Server) azStore(w http.ResponseWriter, r *http.Request, name string, b []byte) {
	when := condition{r.Header.Get("If-None-Match"), r.Header.Get("If-Match")}
	o, ok := s.put(name, b, r.Header.Get("X-Ms-Meta-Sha256"), when)
	switch {
	case ok:
		w.Header().Set("ETag", o.version)
		w.Header().Set("Last-Modified", time.Unix(1_760_000_000, 0).UTC().Format(http.TimeFormat))
		w.WriteHeader(201)
	case when.none != "":
		azError(w, 409, "BlobAlreadyExists")
	default:
		azError(w, 412, "ConditionNotMet")
	}
}

func (s *Server) azBlob(w http.ResponseWriter, r *http.Request, name string) {
	if r.Method == http.MethodPut {
		if b, ok := azBody(w, r); ok {
			s.azStore(w, r, name, b)
		}
		return
	}
	o, ok := s.object(name)
	if !ok {
		azError(w, 404, "BlobNotFound")
		return
	}
	if r.Method == http.MethodDelete {
		s.Remove(name)
		w.WriteHeader(202)
		return
	}
	w.Header().Set("ETag", o.version)
	w.Header().Set("Last-Modified", time.Unix(1_760_000_000, 0).UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Length", strconv.Itoa(len(o.data)))
	if o.sum != "" {
		w.Header().Set("X-Ms-Meta-Sha256", o.sum)
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(o.data)
	}
}

// azBlock keeps a block that is not committed; those of one blob are one upload.
func (s *Server) azBlock(w http.ResponseWriter, r *http.Request, name, id string) {
	b, ok := azBody(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	if s.uploads[name] == nil {
		s.uploads[name] = &upload{blob: map[string][]byte{}}
	}
	s.uploads[name].blob[id] = b
	s.mu.Unlock()
	w.WriteHeader(201)
}

func (s *Server) azCommit(w http.ResponseWriter, r *http.Request, name string) {
	var asked struct {
		Latest []string `xml:"Latest"`
	}
	u := s.take(name)
	if err := xml.NewDecoder(r.Body).Decode(&asked); err != nil || u == nil {
		azError(w, 400, "InvalidBlockList")
		return
	}
	var all []byte
	for _, id := range asked.Latest {
		b, ok := u.blob[id]
		if !ok {
			azError(w, 400, "InvalidBlockList")
			return
		}
		all = append(all, b...)
	}
	s.azStore(w, r, name, all)
}

func (s *Server) azList(w http.ResponseWriter, prefix, after string) {
	names, more := s.page(prefix, after)
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ContainerName=\"%s\"><Blobs>", s.Bucket)
	for _, name := range names {
		o, _ := s.object(name)
		fmt.Fprintf(w, "<Blob><Name>%s</Name><Properties><Content-Length>%d</Content-Length><Etag>%s</Etag><BlobType>BlockBlob</BlobType></Properties></Blob>", escaped(name), len(o.data), o.version)
	}
	fmt.Fprint(w, "</Blobs>")
	if more {
		fmt.Fprintf(w, "<NextMarker>%s</NextMarker>", escaped(names[len(names)-1]))
	}
	fmt.Fprint(w, "</EnumerationResults>")
}
