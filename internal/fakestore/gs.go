package fakestore

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

type gsAbout struct {
	Name     string            `json:"name"`
	MD5      string            `json:"md5Hash"`
	Metadata map[string]string `json:"metadata"`
}

func gsError(w http.ResponseWriter, status int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"errors":[{"reason":%q}]}}`, status, message, reason)
}

func gsDescribe(name string, o object) map[string]any {
	d := map[string]any{"name": name, "size": strconv.Itoa(len(o.data)), "generation": o.version}
	if o.sum != "" {
		d["metadata"] = map[string]string{"sha256": o.sum}
	}
	return d
}

func sendJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func gsCondition(q url.Values) (c condition) {
	switch v := q.Get("ifGenerationMatch"); v {
	case "":
	case "0":
		c.none = "*"
	default:
		c.match = v
	}
	return c
}

// gs answers the JSON API.
func (s *Server) gs(w http.ResponseWriter, r *http.Request) {
	const objects, uploads = "/storage/v1/b/", "/upload/storage/v1/b/"
	path, q := r.URL.EscapedPath(), r.URL.Query()
	upload := strings.HasPrefix(path, uploads)
	path = strings.TrimPrefix(strings.TrimPrefix(path, uploads), objects)
	bucket, rest, _ := strings.Cut(path, "/o")
	if bucket != s.Bucket {
		gsError(w, 404, "notFound", "The specified bucket does not exist.")
		return
	}
	name, err := url.PathUnescape(strings.TrimPrefix(rest, "/"))
	switch {
	case err != nil:
		gsError(w, 400, "invalid", err.Error())
	case upload:
		s.gsUpload(w, r, q)
	case name == "":
		s.gsList(w, q)
	default:
		s.gsObject(w, r, name, q)
	}
}

func (s *Server) gsList(w http.ResponseWriter, q url.Values) {
	names, more := s.page(q.Get("prefix"), q.Get("pageToken"))
	answer := map[string]any{}
	var items []any
	for _, name := range names {
		o, _ := s.object(name)
		items = append(items, gsDescribe(name, o))
	}
	answer["items"] = items
	if more {
		answer["nextPageToken"] = names[len(names)-1]
	}
	sendJSON(w, answer)
}

func (s *Server) gsObject(w http.ResponseWriter, r *http.Request, name string, q url.Values) {
	o, ok := s.object(name)
	if g := q.Get("generation"); !ok || g != "" && g != o.version {
		gsError(w, 404, "notFound", "No such object: "+name)
		return
	}
	switch {
	case r.Method == http.MethodDelete:
		s.Remove(name)
		w.WriteHeader(204)
	case q.Get("alt") == "media":
		w.Header().Set("Content-Length", strconv.Itoa(len(o.data)))
		_, _ = w.Write(o.data)
	default:
		sendJSON(w, gsDescribe(name, o))
	}
}

func (s *Server) gsStore(w http.ResponseWriter, about gsAbout, data []byte, when condition) (made bool) {
	sum := md5.Sum(data)
	if about.MD5 != base64.StdEncoding.EncodeToString(sum[:]) {
		gsError(w, 400, "invalid", "Provided MD5 hash doesn't match")
		return false
	}
	o, ok := s.put(about.Name, data, about.Metadata["sha256"], when)
	if !ok {
		gsError(w, 412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
		return false
	}
	sendJSON(w, gsDescribe(about.Name, o))
	return true
}

func (s *Server) gsUpload(w http.ResponseWriter, r *http.Request, q url.Values) {
	switch {
	case q.Has("upload_id"):
		s.gsChunk(w, r, q.Get("upload_id"))
	case q.Get("uploadType") == "resumable":
		var about gsAbout
		if err := json.NewDecoder(r.Body).Decode(&about); err != nil {
			gsError(w, 400, "invalid", err.Error())
			return
		}
		size, _ := strconv.ParseInt(r.Header.Get("X-Upload-Content-Length"), 10, 64)
		id := s.begin(&upload{about: about, when: gsCondition(q), size: size, parts: map[int][]byte{}})
		w.Header().Set("Location", s.URL()+r.URL.Path+"?upload_id="+id)
	case q.Get("uploadType") == "multipart":
		_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			gsError(w, 400, "invalid", err.Error())
			return
		}
		s.gsMultipart(w, multipart.NewReader(r.Body, params["boundary"]), gsCondition(q))
	default:
		gsError(w, 400, "invalid", "no such uploadType")
	}
}

func (s *Server) gsMultipart(w http.ResponseWriter, in *multipart.Reader, when condition) {
	var about gsAbout
	first, err := in.NextPart()
	if err == nil {
		err = json.NewDecoder(first).Decode(&about)
	}
	var data []byte
	if err == nil {
		var second *multipart.Part
		if second, err = in.NextPart(); err == nil {
			data, err = io.ReadAll(second)
		}
	}
	if err != nil {
		gsError(w, 400, "invalid", err.Error())
		return
	}
	s.gsStore(w, about, data, when)
}

// gsChunk takes the next bytes of an upload, says how many there are, or ends it.
func (s *Server) gsChunk(w http.ResponseWriter, r *http.Request, id string) {
	s.mu.Lock()
	u := s.uploads[id]
	done := u != nil && u.done
	s.mu.Unlock()
	if u == nil {
		gsError(w, 404, "notFound", "no such upload")
		return
	}
	if o, ok := s.object(u.about.Name); done && ok { // a session tells what came of it, as often as it is asked
		sendJSON(w, gsDescribe(u.about.Name, o))
		return
	}
	if r.Method == http.MethodDelete {
		s.take(id)
		w.WriteHeader(499)
		return
	}
	var from, to, size int64
	b, err := io.ReadAll(r.Body)
	if _, serr := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size); serr == nil {
		s.mu.Lock()
		if err == nil && from == int64(len(u.parts[0])) && int64(len(b)) == to-from+1 && (to+1 == size || len(b)%(256<<10) == 0) {
			u.parts[0] = append(u.parts[0], b...)
		} else {
			err = fmt.Errorf("bytes %d-%d do not follow %d", from, to, len(u.parts[0]))
		}
		s.mu.Unlock()
	}
	if err != nil {
		gsError(w, 503, "backendError", err.Error())
		return
	}
	s.mu.Lock()
	data := u.parts[0]
	s.mu.Unlock()
	if int64(len(data)) < u.size {
		if len(data) > 0 {
			w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(data)-1))
		}
		w.WriteHeader(308)
		return
	}
	if !s.gsStore(w, u.about, data, u.when) {
		s.take(id)
		return
	}
	s.mu.Lock()
	u.done, u.parts = true, nil
	s.mu.Unlock()
}
