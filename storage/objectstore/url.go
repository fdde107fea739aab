package objectstore

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// place is a URL, taken apart.
type place struct {
	scheme string // s3, gs, az or file
	bucket string // or container; "" for file
	prefix string // of the keys, without slashes at its ends; "" for file
	path   string // of the folder, for file
}

func (p place) String() string {
	if p.scheme == "file" {
		return "file://" + filepath.ToSlash(p.path)
	}
	return strings.TrimSuffix(p.scheme+"://"+p.bucket+"/"+p.prefix, "/")
}

// name is the full name of the object of a key.
func (p place) name(key string) string { return path.Join(p.prefix, key) }

// folder is what every full name begins with.
func (p place) folder() string {
	if p.prefix == "" {
		return ""
	}
	return p.prefix + "/"
}

// key is the key of a full name.
func (p place) key(name string) string { return strings.TrimPrefix(name, p.folder()) }

const expectedURL = "expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///PATH"

// IsURL tells whether a text is meant as the URL of an object store, rightly written or not.
func IsURL(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && scheme != "" && !strings.ContainsAny(scheme, "/\\")
}

// CheckURL tells what is wrong with a URL; it asks nobody.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

// parseURL takes a URL apart. What it says of a wrong one holds nothing of where a key or a token may stand.
func parseURL(text string) (place, error) {
	bad := func(format string, args ...any) (place, error) {
		return place{}, fmt.Errorf("%w: %s", ErrURL, fmt.Sprintf(format, args...))
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return bad("%s, found %q", expectedURL, text)
	}
	authority, _, _ := strings.Cut(rest, "/")
	switch {
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return bad("%s; this one holds control characters", expectedURL)
	case strings.Contains(authority, "@"):
		return bad("%s; credentials do not belong into it: they are taken from the environment and the profiles of the service", expectedURL)
	case strings.ContainsAny(rest, "?#"):
		return bad("%s, with nothing behind a ? or #; tokens and options are taken from the environment", expectedURL)
	}
	p := place{scheme: scheme}
	bucket, prefix, _ := strings.Cut(rest, "/")
	switch scheme {
	case "s3", "gs", "az":
	case "file":
		if bucket != "" && bucket != "localhost" || prefix == "" {
			return bad("file:// takes an absolute path, such as file:///data/runs/x; found %q", text)
		}
		p.path = filepath.Clean("/" + prefix)
		return p, nil
	default:
		return bad("%s, found the scheme %q", expectedURL, scheme)
	}
	if p.bucket = bucket; len(bucket) < 3 || strings.Trim(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return bad("%s: a bucket has a name of three or more small letters, digits, dots and dashes; found %q", expectedURL, bucket)
	}
	p.prefix = strings.TrimSuffix(prefix, "/")
	if p.prefix != "" && path.Clean("/"+p.prefix) != "/"+p.prefix || strings.Contains(p.prefix, "\\") {
		return bad("%s; in %q a name between slashes is empty, . or ..", expectedURL, prefix)
	}
	return p, nil
}
