package main

import (
	"errors"
	"testing"

	"tranche/action/sandbox"
)

// The example runs: what the engine said right scores 1, the rest 0, and every verdict tells what held the program.
func TestCodeRewardExample(t *testing.T) {
	x, err := openExecutor(backendNS, nil)
	if err == nil {
		_, err = x.Open(t.Context(), sandbox.Spec{})
		err = errors.Join(err, x.Close())
	}
	if err != nil {
		t.Skipf("this host cannot run the back end ns: %v", err)
	}
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", "-c", "../../examples/code-reward/run.yaml", "-n", "1", "-o", dir, "-q", "--json")
	if d := s.document(); d.Dataset.Good != 8 || d.Dataset.Reward.Mean == nil {
		t.Errorf("%+v", d.Dataset)
	}
	full := 0
	for key, row := range rowsIn(t, dir) {
		if row.Reward == nil || *row.Reward != 0 && *row.Reward != 1 {
			t.Errorf("%s: reward %v, want 0 or 1", key, row.Reward)
			continue
		}
		full += int(*row.Reward)
		if len(row.Rewards) != 5 {
			t.Errorf("%s: %d components, want the score and four tiers", key, len(row.Rewards))
		}
	}
	if full == 0 || full == 8 {
		t.Errorf("%d of 8 programs scored full: some are right and some are none", full)
	}
}
