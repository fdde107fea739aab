package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// sameSummary compares summary.json with what the rows add up to. It is written at the end of a session: one of before rows that came later is old,
// and not wrong.
func (v *Verifier) sameSummary() {
	name := filepath.Join(v.cfg.Dir, "summary.json")
	text, err := os.ReadFile(name)
	info, serr := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.miss("summary", "there is no summary.json: no session has ended by itself yet", 0)
		return
	case v.report.Live:
		v.miss("summary", "the run is being written", 0)
		return
	case serr == nil && info.ModTime().After(v.now), v.movedOn():
		v.miss("summary", "the run was written meanwhile", 0)
		return
	case err != nil || serr != nil:
		v.miss("summary", "summary.json cannot be read", 0)
		return
	}
	var stored struct{ Dataset map[string]any }
	if json.Unmarshal(text, &stored) != nil || stored.Dataset == nil {
		v.miss("summary", "summary.json cannot be read", 0) // records says so
		return
	}
	rows, _ := stored.Dataset["rows"].(float64)
	if int64(rows) < v.summary.Rows || v.latest.After(info.ModTime()) {
		v.miss("summary", fmt.Sprintf("summary.json is older than some rows (it was written %s)", since(info.ModTime())), 0)
		return
	}
	if where := v.unlikeSummary(stored.Dataset); where != "" {
		v.find("summary", Place{File: "summary.json", What: where})
	}
}

// movedOn says whether something was published since the manifest was read.
func (v *Verifier) movedOn() bool {
	m, err := v.run.Manifest()
	return err == nil && m.Generation != v.generation
}

// unlikeSummary says where the two differ first; "" = they do not. What an older program did not count is not compared.
func (v *Verifier) unlikeSummary(stored map[string]any) string {
	var counted map[string]any
	text, err := json.Marshal(v.summary)
	if err == nil {
		err = json.Unmarshal(text, &counted)
	}
	if err != nil {
		panic(fmt.Sprintf("verify: a summary that is no JSON: %v", err)) // it is made of numbers and texts
	}
	for _, key := range slices.Sorted(maps.Keys(counted)) {
		if _, there := stored[key]; there {
			if where := unlike("dataset."+key, stored[key], counted[key]); where != "" {
				return where
			}
		}
	}
	return ""
}

// unlike compares two JSON values; no map and an empty one are the same.
func unlike(where string, a, b any) string {
	am, _ := a.(map[string]any)
	bm, isMap := b.(map[string]any)
	if isMap || am != nil {
		for _, key := range slices.Sorted(maps.Keys(merged(am, bm))) {
			if w := unlike(where+"."+key, am[key], bm[key]); w != "" {
				return w
			}
		}
		return ""
	}
	af, aok := a.(float64)
	bf, bok := b.(float64)
	if aok && bok && math.Abs(af-bf) <= 1e-6*max(1, math.Abs(af)) || a == nil && b == nil {
		return ""
	}
	return fmt.Sprintf("%s is %v, the rows give %v", where, shown(a), shown(b))
}

func merged(a, b map[string]any) map[string]any {
	m := map[string]any{}
	maps.Copy(m, a)
	maps.Copy(m, b)
	return m
}

func shown(v any) any {
	if v == nil {
		return "nothing"
	}
	return v
}
