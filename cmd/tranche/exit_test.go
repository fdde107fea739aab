package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// One list: the code, the help and the document say the same.
func TestExitCodesAreOneList(t *testing.T) {
	doc, err := os.ReadFile("../../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	own, _, _ := strings.Cut(string(doc), "\n## ") // what follows are the codes of programs that were run
	rows := strings.Count(own, "\n| ") - 1         // the heading
	if rows != len(exitCodes()) {
		t.Errorf("docs/exit-codes.md has %d rows, the code %d", rows, len(exitCodes()))
	}
	for _, l := range exitCodes() {
		row := fmt.Sprintf("| %d | %s | %s |", l.code, l.name, l.meaning)
		if !strings.Contains(string(doc), row) {
			t.Errorf("docs/exit-codes.md lacks %q", row)
		}
		if !strings.Contains(exitCodesText(), l.meaning) {
			t.Errorf("the help lacks %d", l.code)
		}
	}
}

func TestErrorsCarryTheirCode(t *testing.T) {
	inner := withCode(codeTasks, errors.New("x"))
	cases := []struct {
		name string
		err  error
		want code
	}{
		{"none", nil, codeOK},
		{"plain", errors.New("x"), codeInternal},
		{"given", inner, codeTasks},
		{"the first one stands", withCode(codeDisk, fmt.Errorf("while: %w", inner)), codeTasks},
		{"an outcome without a message", outcome(codePartial), codePartial},
		{"all is well", outcome(codeOK), codeOK},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := codeOf(c.err); got != c.want {
				t.Errorf("code %d, want %d", got, c.want)
			}
		})
	}
}
