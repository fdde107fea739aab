package fakestore

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const stamp = "2026-01-01T00:00:00.000Z"

func s3Error(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s, said the fake</Message></Error>", code, code)
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}

func s3Condition(r *http.Request) condition {
	return condition{r.Header.Get("If-None-Match"), strings.Trim(r.Header.Get("If-Match"), `"`)}
}

// s3 answers /BUCKET and /BUCKET/KEY.
func (s *Server) s3(w http.ResponseWriter, r *http.Request) {
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	switch {
	case bucket != s.Bucket:
		s3Error(w, 404, "NoSuchBucket")
	case name == "" && q.Has("uploads"):
		s.s3Uploads(w, q.Get("prefix"))
	case name == "":
		s.s3List(w, q.Get("prefix"), q.Get("continuation-token"))
	case q.Has("uploads"):
		id := s.begin(&upload{name: name, sum: r.Header.Get("X-Amz-Meta-Sha256"), parts: map[int][]byte{}})
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><UploadId>%s</UploadId></InitiateMultipartUploadResult>", bucket, escaped(name), id)
	case q.Has("uploadId"):
		s.s3Upload(w, r, name, q.Get("uploadId"), q.Get("partNumber"))
	default:
		s.s3Object(w, r, name)
	}
}

// s3Body reads a body and compares it with its signed sum.
func s3Body(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		s3Error(w, 400, "IncompleteBody")
		return nil, false
	}
	if sum := r.Header.Get("X-Amz-Content-Sha256"); sum != sumOf(b) {
		s3Error(w, 400, "XAmzContentSHA256Mismatch")
		return nil, false
	}
	return b, true
}

func (s *Server) s3Object(w http.ResponseWriter, r *http.Request, name string) {
	switch r.Method {
	case http.MethodPut:
		b, ok := s3Body(w, r)
		if !ok {
			return
		}
		o, ok := s.put(name, b, r.Header.Get("X-Amz-Meta-Sha256"), s3Condition(r))
		if !ok {
			s3Error(w, 412, "PreconditionFailed")
			return
		}
		w.Header().Set("ETag", `"`+o.version+`"`)
	case http.MethodGet, http.MethodHead:
		o, ok := s.object(name)
		if !ok {
			s3Error(w, 404, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", `"`+o.version+`"`)
		w.Header().Set("Last-Modified", time.Unix(1_760_000_000, 0).UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Length", strconv.Itoa(len(o.data)))
		if o.sum != "" {
			w.Header().Set("X-Amz-Meta-Sha256", o.sum)
		}
		if r.Method == http.MethodGet {
			_, _ = w.Write(o.data)
		}
	case http.MethodDelete:
		s.Remove(name)
		w.WriteHeader(204)
	default:
		s3Error(w, 405, "MethodNotAllowed")
	}
}

func (s *Server) s3Upload(w http.ResponseWriter, r *http.Request, name, id, part string) {
	s.mu.Lock()
	u := s.uploads[id]
	s.mu.Unlock()
	switch {
	case u == nil || u.name != name:
		s3Error(w, 404, "NoSuchUpload")
	case r.Method == http.MethodDelete:
		s.take(id)
		w.WriteHeader(204)
	case r.Method == http.MethodPut:
		b, ok := s3Body(w, r)
		if !ok {
			return
		}
		n, _ := strconv.Atoi(part)
		s.mu.Lock()
		u.parts[n] = b
		s.mu.Unlock()
		w.Header().Set("ETag", `"`+sumOf(b)+`"`)
	case r.Method == http.MethodPost:
		s.s3Complete(w, r, u, id)
	}
}

func (s *Server) s3Complete(w http.ResponseWriter, r *http.Request, u *upload, id string) {
	var asked struct {
		Parts []struct {
			PartNumber int
			ETag       string
		} `xml:"Part"`
	}
	if err := xml.NewDecoder(r.Body).Decode(&asked); err != nil {
		s3Error(w, 400, "MalformedXML")
		return
	}
	slices.SortFunc(asked.Parts, func(a, b struct {
		PartNumber int
		ETag       string
	}) int {
		return cmp.Compare(a.PartNumber, b.PartNumber)
	})
	var all []byte
	for i, p := range asked.Parts {
		s.mu.Lock()
		b, ok := u.parts[p.PartNumber]
		s.mu.Unlock()
		if !ok || strings.Trim(p.ETag, `"`) != sumOf(b) {
			s3Error(w, 400, "InvalidPart")
			return
		}
		if i < len(asked.Parts)-1 && len(b) < 5<<20 {
			s3Error(w, 400, "EntityTooSmall")
			return
		}
		all = append(all, b...)
	}
	o, ok := s.put(u.name, all, u.sum, s3Condition(r))
	if !ok {
		s3Error(w, 412, "PreconditionFailed")
		return
	}
	s.take(id)
	fmt.Fprintf(w, "<CompleteMultipartUploadResult><Bucket>%s</Bucket><Key>%s</Key><ETag>\"%s\"</ETag></CompleteMultipartUploadResult>", s.Bucket, escaped(u.name), o.version)
}

func (s *Server) s3List(w http.ResponseWriter, prefix, after string) {
	names, more := s.page(prefix, after)
	fmt.Fprintf(w, "<ListBucketResult><Name>%s</Name><IsTruncated>%v</IsTruncated>", s.Bucket, more)
	for _, name := range names {
		o, _ := s.object(name)
		fmt.Fprintf(w, "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>\"%s\"</ETag><Size>%d</Size></Contents>", escaped(name), stamp, o.version, len(o.data))
	}
	if more {
		fmt.Fprintf(w, "<NextContinuationToken>%s</NextContinuationToken>", escaped(names[len(names)-1]))
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

func (s *Server) s3Uploads(w http.ResponseWriter, prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(w, "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>")
	for id, u := range s.uploads {
		if strings.HasPrefix(u.name, prefix) {
			fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", escaped(u.name), id, stamp)
		}
	}
	fmt.Fprint(w, "</ListMultipartUploadsResult>")
}
