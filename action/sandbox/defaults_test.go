package sandbox

import (
	"errors"
	"strings"
	"testing"
)

func TestEnvironmentHasEveryNameOnce(t *testing.T) {
	got := Environment("/w", "/tmp", []string{"HOME=/x", "A=1", "A=2", "EMPTY="})
	seen := map[string]string{}
	for _, e := range got {
		name, value, _ := strings.Cut(e, "=")
		if _, twice := seen[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = value
	}
	if _, empty := seen["EMPTY"]; seen["HOME"] != "/x" || seen["A"] != "2" || seen["TZ"] != "UTC" || seen["TMPDIR"] != "/tmp" || !empty {
		t.Errorf("%v", got)
	}
}

// Zeros are the defaults; what no program can run under is named, all of it at once.
func TestLimits(t *testing.T) {
	if d := (Limits{}).Filled(); d != DefaultLimits() || d.Filled() != d {
		t.Errorf("zeros became %+v", d)
	}
	for name, l := range map[string]Limits{"zeros": {}, "the least": {Memory: 1 << 20, Pids: 1, Disk: 1 << 12, FileSize: 1, OpenFiles: 4}} {
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := Limits{Memory: 1 << 10, Pids: -1, Disk: -1, FileSize: -1, OpenFiles: 3}.Validate()
	for _, name := range []string{"Memory", "Pids", "Disk", "FileSize", "OpenFiles"} {
		if err == nil || !strings.Contains(err.Error(), "the limit "+name+" is ") {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
	var one *LimitError
	if !errors.As(err, &one) || one.Name != "Memory" || one.Value != 1<<10 || one.Least != 1<<20 {
		t.Errorf("got %+v", one)
	}
}

// Only what is enforced can be required.
func TestHold(t *testing.T) {
	c := Capabilities{Backend: "b", Promises: map[Promise]Strength{PromiseCPU: BestEffort, PromiseNet: Enforced}, Why: map[Promise]string{PromiseCPU: "slow"}}
	if err := c.Hold([]Promise{PromiseNet}); err != nil {
		t.Error(err)
	}
	err := c.Hold(Promises())
	var refused *RequireError
	if !errors.As(err, &refused) || len(refused.Missing) != len(Promises())-1 || !strings.Contains(err.Error(), "cpu (slow)") {
		t.Errorf("got %v", err)
	}
}
