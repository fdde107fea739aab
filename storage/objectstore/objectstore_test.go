package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tranche/internal/fakestore"
)

// realEnv names URLs of real servers, parted by blanks, on which TestEveryStore is played too. Their credentials and endpoints are in
// the environment as for every other program; everything under the URLs' prefixes may be deleted.
const realEnv = "TRANCHE_STORE_URLS"

// useFake puts a fake service into the environment; "" for file.
func useFake(t testing.TB, scheme string) (server *fakestore.Server, url string) {
	if scheme == "file" {
		return nil, "file://" + filepath.ToSlash(t.TempDir()) + "/place of runs/x"
	}
	server = fakestore.New(t, scheme)
	for name, value := range environment(scheme, server) {
		t.Setenv(name, value)
	}
	return server, scheme + "://" + server.Bucket + "/runs/place of ä+b/x"
}

func environment(scheme string, s *fakestore.Server) map[string]string {
	switch scheme {
	case "s3":
		return map[string]string{"AWS_ENDPOINT_URL": s.URL(), "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
	case "gs":
		return map[string]string{"STORAGE_EMULATOR_HOST": strings.TrimPrefix(s.URL(), "http://")}
	}
	return map[string]string{"AZURE_STORAGE_CONNECTION_STRING": fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;",
		fakestore.Account, fakestore.Key(), s.URL())}
}

func quick(url string) Config {
	return Config{URL: url, PartBytes: leastPartBytes, Attempts: 4, Pause: time.Millisecond}
}

func mustStore(t testing.TB, cfg Config) Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func noise(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = rng.Read(b)
	return b
}

func put(ctx context.Context, s Store, key string, b []byte, when Condition) (Object, error) {
	return s.Put(ctx, key, bytes.NewReader(b), int64(len(b)), sumBytes(b), when)
}

func mustPut(t *testing.T, s Store, key string, b []byte) Object {
	t.Helper()
	o, err := put(t.Context(), s, key, b, Condition{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustHold(t *testing.T, s Store, key string, want []byte) {
	t.Helper()
	got, o, err := readObject(t.Context(), s, key)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s holds %d bytes (error %v), want %d", key, len(got), err, len(want))
	}
	at, err := s.Stat(t.Context(), key)
	if want := (Object{key, int64(len(want)), sumBytes(want), o.Version}); err != nil || at != want || o != want {
		t.Fatalf("get says %+v, stat %+v (error %v), want %+v", o, at, err, want)
	}
}

func keys(t *testing.T, s Store) []string {
	t.Helper()
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range list {
		names = append(names, o.Key)
	}
	return names
}

// TestEveryStore is what each service must do, on fakes here and on real servers by scripts/objectstores.sh.
func TestEveryStore(t *testing.T) {
	for _, scheme := range []string{"s3", "gs", "az", "file"} {
		t.Run(scheme, func(t *testing.T) {
			server, url := useFake(t, scheme)
			s := mustStore(t, quick(url))
			suite(t, s)
			if server != nil && server.Uploads() > 0 {
				t.Errorf("%d uploads are left", server.Uploads())
			}
		})
	}
	for _, url := range strings.Fields(os.Getenv(realEnv)) {
		t.Run(strings.ReplaceAll(url, "/", "_"), func(t *testing.T) {
			s := mustStore(t, Config{URL: url, PartBytes: leastPartBytes})
			if az, ok := s.(*blobs); ok {
				_, _ = az.client.Create(t.Context(), nil) // where it is there already, all is well
			}
			suite(t, s)
		})
	}
}

func suite(t *testing.T, s Store) {
	ctx := t.Context()
	for _, o := range keys(t, s) { // of an earlier session on a real server
		if err := s.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	step := func(name string, do func(t *testing.T)) { t.Run(name, do) }
	step("nothing", func(t *testing.T) {
		_, _, gerr := s.Get(ctx, "absent")
		_, serr := s.Stat(ctx, "absent")
		if !errors.Is(gerr, ErrNotFound) || !errors.Is(serr, ErrNotFound) || len(keys(t, s)) != 0 {
			t.Errorf("get: %v, stat: %v, list: %v; want none", gerr, serr, keys(t, s))
		}
		if err := s.Delete(ctx, "absent"); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
	step("there and back", func(t *testing.T) {
		for _, n := range []int{0, 1, 100_000, leastPartBytes, 2*leastPartBytes + 12345} {
			b := noise(n)
			o := mustPut(t, s, "parts/part-00000.parquet", b)
			mustHold(t, s, "parts/part-00000.parquet", b)
			if at, err := s.Stat(ctx, "parts/part-00000.parquet"); err != nil || at.Version != o.Version {
				t.Errorf("%d bytes: put gave version %q, stat %q (%v)", n, o.Version, at.Version, err)
			}
		}
	})
	step("conditions", func(t *testing.T) { conditionsHold(t, s) })
	step("an upload that fails leaves nothing", func(t *testing.T) {
		b := noise(3 * leastPartBytes)
		if _, err := s.Put(ctx, "broken", &cutReader{bytes.NewReader(b), 2*leastPartBytes + 100}, int64(len(b)), sumBytes(b), Condition{}); err == nil {
			t.Error("put went well though its bytes could not be read")
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := put(ended, s, "broken", b, Condition{}); err == nil {
			t.Error("put went well though its context had ended")
		}
		if _, err := s.Stat(ctx, "broken"); !errors.Is(err, ErrNotFound) {
			t.Errorf("stat: %v, want none", err)
		}
		if err := s.Sweep(ctx); err != nil {
			t.Errorf("sweep: %v", err)
		}
	})
	step("lists", func(t *testing.T) {
		want := []string{"parts/part-00000.parquet", "conditional"}
		for i := range 7 {
			name := fmt.Sprintf("failures/part-%05d.parquet", i)
			mustPut(t, s, name, noise(i))
			want = append(want, name)
		}
		slices.Sort(want)
		got := keys(t, s)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("list: %q, want %q", got, want)
		}
	})
	step("deletes", func(t *testing.T) {
		for _, key := range keys(t, s) {
			if err := s.Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
		}
		if left := keys(t, s); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

func conditionsHold(t *testing.T, s Store) {
	ctx, one, two, three := t.Context(), []byte("one"), []byte("two"), noise(leastPartBytes+1)
	first, err := put(ctx, s, "conditional", one, Condition{Absent: true})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := put(ctx, s, "conditional", one, Condition{Absent: true}); err != nil || again.Version != first.Version {
		t.Errorf("the very same once more: %+v, %v", again, err)
	}
	for _, b := range [][]byte{two, three} { // three goes in parts
		if _, err := put(ctx, s, "conditional", b, Condition{Absent: true}); !errors.Is(err, ErrConflict) {
			t.Errorf("%d bytes where something stands: %v, want a conflict", len(b), err)
		}
	}
	second, err := put(ctx, s, "conditional", two, Condition{Version: first.Version})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{one, three} {
		if _, err := put(ctx, s, "conditional", b, Condition{Version: first.Version}); !errors.Is(err, ErrConflict) {
			t.Errorf("%d bytes over another version: %v, want a conflict", len(b), err)
		}
	}
	mustHold(t, s, "conditional", two)
	if _, err := put(ctx, s, "conditional", three, Condition{Version: second.Version}); err != nil {
		t.Errorf("in parts over the right version: %v", err)
	}
	mustHold(t, s, "conditional", three)
	if _, err := put(ctx, s, "gone", one, Condition{Version: first.Version}); !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
		t.Errorf("over a version of nothing: %v, want a conflict", err)
	}
}

// cutReader fails where a file that was cut would end.
type cutReader struct {
	r   io.ReaderAt
	end int64
}

func (c *cutReader) ReadAt(b []byte, at int64) (int, error) {
	if at+int64(len(b)) > c.end {
		return 0, errors.New("the disk failed")
	}
	return c.r.ReadAt(b, at)
}

// A neighbour whose name begins alike is not seen.
func TestAPlaceEndsAtItsSlash(t *testing.T) {
	for _, scheme := range []string{"s3", "gs", "az"} {
		server, url := useFake(t, scheme)
		s := mustStore(t, quick(url))
		server.Set("runs/place of ä+b/xy/parts/part-00000.parquet", []byte("a neighbour's"))
		mustPut(t, s, "run.yaml", []byte("a: 1\n"))
		if got := keys(t, s); !slices.Equal(got, []string{"run.yaml"}) {
			t.Errorf("%s: %q", scheme, got)
		}
		if want := "runs/place of ä+b/x/run.yaml"; server.Data(want) == nil {
			t.Errorf("%s: there is no %q: %q", scheme, want, server.Names())
		}
	}
}

func TestURLs(t *testing.T) {
	good := map[string]place{
		"s3://bucket":                 {scheme: "s3", bucket: "bucket"},
		"s3://my.bucket-1/":           {scheme: "s3", bucket: "my.bucket-1"},
		"gs://bucket/runs/x/":         {scheme: "gs", bucket: "bucket", prefix: "runs/x"},
		"az://bucket/a b/ü%41":        {scheme: "az", bucket: "bucket", prefix: "a b/ü%41"},
		"file:///data/runs/x":         {scheme: "file", path: "/data/runs/x"},
		"file://localhost/data/../x/": {scheme: "file", path: "/x"},
	}
	for text, want := range good {
		if got, err := parseURL(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	bad := []struct{ text, says string }{
		{"", "expected s3://"}, {"runs/x", "expected s3://"}, {"http://bucket/x", `the scheme "http"`}, {"S3://bucket", "scheme"},
		{"s3://", "three or more"}, {"s3://B/x", "small letters"}, {"s3://bucket//x", "between slashes"}, {"s3://bucket/../x", "between slashes"},
		{"s3://bucket/a/./b", "between slashes"}, {"s3://id:topsecret@bucket/x", "credentials do not belong"}, {"az://bucket/x?sig=topsecret", "nothing behind a ?"},
		{"gs://bucket/x#topsecret", "nothing behind a ?"}, {"file://host/x", "absolute path"}, {"file://", "absolute path"}, {"file://x", "absolute path"}, {"s3://bucket/a\nb", "control characters"},
	}
	for _, c := range bad {
		_, err := parseURL(c.text)
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.text, err, c.says)
		} else if strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%q: the secret is repeated: %v", c.text, err)
		}
	}
}

// A URL that is taken gives names that stay under its prefix, and itself again.
func FuzzURL(f *testing.F) {
	for _, text := range []string{"s3://bucket/a/b", "file:///x/../y", "gs://b.c/ü", "az://abc/..", "s3://abc/x\\..\\y"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseURL(text)
		if err != nil {
			return
		}
		again, err := parseURL(p.String())
		if err != nil || again != p {
			t.Fatalf("%q is %+v, and as %q %+v (%v)", text, p, p, again, err)
		}
		if name := p.name("parts/part-00000.parquet"); p.key(name) != "parts/part-00000.parquet" || !strings.HasPrefix(name, p.folder()) {
			t.Fatalf("%q: the name is %q", text, name)
		}
	})
}

// The parts of an upload are the object: they follow one another, none is empty, and none but the last is below the size.
func TestCutIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cut(rapid.Int64Range(1, 50<<40).Draw(t, "size"), rapid.Int64Range(leastPartBytes, 1<<30).Draw(t, "each"))
		n := c.count()
		if n > mostParts {
			t.Fatalf("%d parts", n)
		}
		at := int64(0)
		for i := range n {
			offset, length := c.at(i)
			if offset != at || length <= 0 || length < c.each && i < n-1 {
				t.Fatalf("part %d of %d: %d bytes at %d, expected at %d", i, n, length, offset, at)
			}
			at += length
		}
		if at != c.size {
			t.Fatalf("the parts are %d bytes, the object %d", at, c.size)
		}
	})
}

func TestConfigNamesEveryFault(t *testing.T) {
	err := Config{URL: "nowhere", PartBytes: 7, Attempts: -1}.Validate()
	for _, want := range []string{"expected s3://", "PartBytes is 7", "Attempts is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := errors.Join(Push{Width: -1, Every: -1}.Validate(), Pull{Attempts: -1}.Validate()); strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("%v, want five faults", err)
	}
}
