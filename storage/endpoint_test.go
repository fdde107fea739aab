package storage

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEndpointRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Open(Config{Dir: dir, RunFile: []byte("x: 1\n")})
	if err != nil {
		t.Fatal(err)
	}
	type record struct{ Value string }
	for _, name := range []string{"127.0.0.1:8000/v1", "../../up", "127.0.0.1:8000/v1"} {
		if err := w.WriteEndpoint(name, record{name}); err != nil {
			t.Fatal(err)
		}
		var back record
		if ok, err := ReadEndpoint(dir, name, &back); !ok || err != nil || back.Value != name {
			t.Errorf("%s: %v %v %+v", name, ok, err, back)
		}
	}
	if list, err := os.ReadDir(filepath.Join(dir, "endpoints")); err != nil || len(list) != 2 {
		t.Errorf("%v %v", list, err)
	}
	if ok, err := ReadEndpoint(dir, "another", &record{}); ok || err != nil {
		t.Errorf("a record that was never written: %v %v", ok, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteEndpoint("late", record{}); err == nil {
		t.Error("written after Close")
	}
	w, err = Open(Config{Dir: dir}) // the folder is no stranger to a run that is opened again
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
