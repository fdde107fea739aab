package main

import (
	"encoding/json"
	"testing"
)

// A set that a later program kept with a rule of its own is not recomputed by one of ours.
func TestReadRuleKnowsItsRules(t *testing.T) {
	for text, known := range map[string]bool{
		`{"total":"gate","thresholds":[{"name":"a","threshold":0.5}]}`: true,
		`{"total":"minimum"}`: true,
		`{"total":""}`:        true,
		`{"total":"median"}`:  false,
		`{"total":7}`:         false,
		``:                    false,
	} {
		if got := readRule(json.RawMessage(text)).total() != nil; got != known {
			t.Errorf("%s: known %v, want %v", text, got, known)
		}
	}
}
