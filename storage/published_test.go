package storage

import "testing"

// Names of extras come from a store and are not trusted: none leads out of the directory.
func TestExtrasOfSourcesStayInside(t *testing.T) {
	for name, want := range map[string]bool{
		"run.yaml": true, "endpoints/a.json": true, "sources/00000/run.yaml": true, "sources/00012/endpoints/a.json": true,
		"sources/00000/sources/00001/draws.jsonl": true,
		"sources/run.yaml":                        false, "sources/00000": false, "sources/00000/": false, "sources/0/run.yaml": false, "sources/-0001/run.yaml": false,
		"sources/00000/x": false, "sources/00000/../run.yaml": false, "sources/../run.yaml": false, "sources/00000/sources/../run.yaml": false,
		"sources/00000/endpoints/../../../../a.json": false, "../run.yaml": false, "/run.yaml": false, "sources/00000//run.yaml": false,
		"sources/00000/parts/part-00000.parquet": false, "sources/00000/manifest.json": false,
	} {
		if got := IsExtra(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
