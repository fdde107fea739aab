package codegrade

import (
	"encoding/json"
	"testing"
)

// wired reads a value as a sandbox sends it.
func wired(t *testing.T, text string) value {
	t.Helper()
	v, err := parseValue([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestWhatCountsAsEqual(t *testing.T) {
	const (
		i1, i2, yes, f1, fh   = `["i","1"]`, `["i","2"]`, `["b",1]`, `["f","0x1p+0"]`, `["f","0x1.8p+0"]`
		nan, inf              = `["f","nan"]`, `["f","inf"]`
		list12, tuple12       = `["l",[["i","1"],["i","2"]]]`, `["t",[["i","1"],["i","2"]]]`
		set12, set21, frozen  = `["e",[["i","1"],["i","2"]]]`, `["e",[["i","2"],["i","1"]]]`, `["E",[["i","1"],["i","2"]]]`
		dict, turned          = `["d",[["s","a"],["i","1"],["s","b"],["i","2"]]]`, `["d",[["s","b"],["i","2"],["s","a"],["i","1"]]]`
		byNumber, byText      = `["d",[["i","a"],["i","1"]]]`, `["d",[["s","10"],["i","1"]]]`
		listNaN               = `["l",[["f","nan"]]]`
		tenth, near           = `["f","0x1.999999999999ap-4"]`, `["f","0x1.99999999999a0p-4"]`
		half, halfD, third    = `["F","1/2"]`, `["D","0.50"]`, `["F","1/3"]`
		abc, abcBytes, abcArr = `["s","abc"]`, `["y","616263"]`, `["Y","616263"]`
		c10, c11              = `["c","0x1p+0","0x0p+0"]`, `["c","0x1p+0","0x1p+0"]`
		once                  = `["I",[["i","1"],["i","2"]]]`
		hugeD, hugeE          = `["D","1E+999999999"]`, `["D","1E+999999998"]`
	)
	cases := []struct {
		name                string
		want, got           string
		typed, json, python bool
	}{
		{"the same", i1, i1, true, true, true},
		{"another number", i1, i2, false, false, false},
		{"int and bool", i1, yes, false, false, true},
		{"bool and int", yes, i1, false, false, true},
		{"int and float", i1, f1, false, true, true},
		{"float and int", f1, i1, false, true, true},
		{"float and bool", f1, yes, false, false, true},
		{"another float", f1, fh, false, false, false},
		{"NaN", nan, nan, true, true, false},
		{"NaN is no number", nan, f1, false, false, false},
		{"infinity", inf, inf, true, true, true},
		{"list and tuple", list12, tuple12, false, true, false},
		{"list and list", list12, list12, true, true, true},
		{"sets without order", set12, set21, true, true, true},
		{"set and frozenset", set12, frozen, false, false, true},
		{"set and list", list12, set12, false, false, false},
		{"dict order", dict, turned, true, true, true},
		{"keys as text", byText, byNumber, false, true, false},
		{"NaN inside", listNaN, listNaN, true, true, false},
		{"not quite", tenth, near, false, false, false},
		{"Decimal and Fraction", half, halfD, false, true, true},
		{"Fraction and float", half, `["f","0x1p-1"]`, false, true, true},
		{"a third", third, third, true, true, true},
		{"text and bytes", abc, abcBytes, false, false, false},
		{"bytes and bytearray", abcBytes, abcArr, false, false, true},
		{"complex and int", c10, i1, false, true, true},
		{"complex", c11, c11, true, true, true},
		{"a one-time thing", once, once, false, false, false},
		{"list and one-time thing", list12, once, false, false, false},
		{"None", `["n"]`, `["n"]`, true, true, true},
		{"None and False", `["n"]`, `["b",0]`, false, false, false},
		{"exponents that cannot be worked out", hugeD, hugeD, true, true, true},
		{"exponents that differ", hugeD, hugeE, false, false, false},
		{"types", `["T","int"]`, `["T","float"]`, false, false, false},
		{"dates", `["o","date",[2020,1,2]]`, `["o","date",[2020,1,2]]`, true, true, true},
		{"lone surrogates", `["S","eda080"]`, `["S","eda081"]`, false, false, false},
		{"text that looks like another's key", `["t",[["s","a\",s\"b"]]]`, `["t",[["s","a"],["s","b"]]]`, false, false, false},
	}
	for _, c := range cases {
		want, got := wired(t, c.want), wired(t, c.got)
		for how, expected := range map[string]bool{CompareTyped: c.typed, CompareJSON: c.json, ComparePython: c.python} {
			if equal := (alike{how: how}).equal(want, got); equal != expected {
				t.Errorf("%s: %s: %v, want %v", c.name, how, equal, expected)
			}
		}
	}
}

func TestToleranceIsOfFloatsAlone(t *testing.T) {
	a := alike{how: ComparePython, tolerance: 1e-6}
	for _, c := range []struct {
		want, got string
		equal     bool
	}{
		{`["f","0x1p+0"]`, `["f","0x1.0000001p+0"]`, true},
		{`["f","0x1p+0"]`, `["f","0x1.01p+0"]`, false},
		{`["i","1"]`, `["f","0x1.0000001p+0"]`, false},
		{`["f","inf"]`, `["f","0x1p+0"]`, false},
		{`["f","nan"]`, `["f","0x1p+0"]`, false},
		{`["l",[["f","0x1p+0"]]]`, `["l",[["f","0x1.0000001p+0"]]]`, true},
	} {
		if got := a.equal(wired(t, c.want), wired(t, c.got)); got != c.equal {
			t.Errorf("%s and %s: %v", c.want, c.got, got)
		}
	}
}

func TestPartsAreCountedOutsideTexts(t *testing.T) {
	for text, want := range map[string]int{`["l",[["i","1"],["n"]]]`: 7, `["s","[,[,\",["]`: 2, `{"value":["s",""]}`: 3, ``: 0} {
		if got := parts([]byte(text)); got != want {
			t.Errorf("%s: %d parts, want %d", text, got, want)
		}
	}
}

// A value that is read is written again as it was, and is equal to itself unless there is a NaN or a one-time thing in it.
func FuzzWire(f *testing.F) {
	for _, seed := range []string{`["n"]`, `["b",1]`, `["i","-ff"]`, `["f","0x1.8p+3"]`, `["s","x"]`, `["S","eda080"]`, `["d",[["i","1"],["l",[]]]]`,
		`["r","0","5","1"]`, `["o","date",[1,2,3]]`, `["c","nan","inf"]`, `["D","1.5"]`, `["e",[["t",[["T","int"]]]]]`, `["l",[["l",[["l",[]]]]]]`, `[]`, `["d",[["n"]]]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseValue([]byte(text))
		if err != nil {
			return
		}
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%s cannot be written again: %v", text, err)
		}
		again, err := parseValue(out)
		if err != nil {
			t.Fatalf("%s was written as %s, which cannot be read: %v", text, out, err)
		}
		for _, how := range []string{CompareTyped, CompareJSON, ComparePython} {
			a := alike{how: how}
			if a.key(v) != a.key(again) {
				t.Fatalf("%s was written as %s, which is another value", text, out)
			}
			if a.equal(v, again) != a.equal(v, v) {
				t.Fatalf("%s: equal to itself: %v, to its copy: %v", text, a.equal(v, v), a.equal(v, again))
			}
		}
	})
}
