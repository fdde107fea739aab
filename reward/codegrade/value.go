package codegrade

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// kind is what a value is in Python. The letters are the tags of wire.py.
type kind string

const (
	kindNone      kind = "n"
	kindBool      kind = "b"
	kindInt       kind = "i"
	kindFloat     kind = "f"
	kindComplex   kind = "c"
	kindString    kind = "s"
	kindBytes     kind = "y"
	kindByteArray kind = "Y"
	kindList      kind = "l"
	kindTuple     kind = "t"
	kindSet       kind = "e"
	kindFrozenSet kind = "E"
	kindDict      kind = "d"
	kindRange     kind = "r"
	kindIterator  kind = "I"
	kindType      kind = "T"
	kindDecimal   kind = "D"
	kindFraction  kind = "F"
	kindClock     kind = "o"
)

const tagSurrogates = "S" // a string that UTF-8 cannot hold, in hex

// value is one Python value. It holds nothing that a program could act through.
type value struct {
	kind  kind
	int   *big.Int  // of a bool, an int
	re    float64   // of a float, a complex
	im    float64   // of a complex
	text  string    // of a string (surrogates as Python's surrogatepass has them), bytes; words of a type, Decimal, Fraction
	items []value   // of a list, tuple, set, iterator; of a dict key, value, key, value; of a range start, stop, step
	clock clockText // of a date or time
}

// clockText is a date or a time: its class and numbers.
type clockText struct {
	class   string
	numbers string
}

// deepest is how far values may be nested; what comes from a sandbox is nested less.
const deepest = 300

var errWire = errors.New("no value of the wire")

// parseValue reads a value as wire.py writes it.
func parseValue(text []byte) (value, error) {
	raw, err := decodeJSON(text)
	if err != nil {
		return value{}, err
	}
	return fromWire(raw, 0)
}

// decodeJSON reads one JSON text and keeps numbers as they are written.
func decodeJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var raw any
	if err := d.Decode(&raw); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return raw, nil
}

func fromWire(raw any, deep int) (value, error) {
	list, ok := raw.([]any)
	if !ok || len(list) == 0 || deep > deepest {
		return value{}, errWire
	}
	tag, _ := list[0].(string)
	switch k := kind(tag); {
	case k == kindNone && len(list) == 1:
		return value{kind: k}, nil
	case k == kindClock && len(list) == 3:
		return clockOf(list[1], list[2])
	case len(list) == 2:
		if items, ok := list[1].([]any); ok {
			return holderOf(k, items, deep)
		}
		return scalarOf(tag, list[1])
	case k == kindComplex && len(list) == 3:
		re, err1 := floatOf(list[1])
		im, err2 := floatOf(list[2])
		return value{kind: k, re: re, im: im}, errors.Join(err1, err2)
	case k == kindRange && len(list) == 4:
		v := value{kind: k, items: make([]value, 3)}
		var err error
		for i, part := range list[1:] {
			if v.items[i], err = scalarOf(string(kindInt), part); err != nil {
				return value{}, err
			}
		}
		return v, nil
	}
	return value{}, errWire
}

// scalarOf reads what has one payload that is no list.
func scalarOf(tag string, raw any) (value, error) {
	if tag == string(kindBool) {
		n, ok := raw.(json.Number)
		if !ok || n != "0" && n != "1" {
			return value{}, errWire
		}
		return value{kind: kindBool, int: big.NewInt(int64(n[0] - '0'))}, nil
	}
	text, ok := raw.(string)
	if !ok {
		return value{}, errWire
	}
	switch k := kind(tag); k {
	case kindInt:
		n, ok := new(big.Int).SetString(text, 16)
		if !ok {
			return value{}, errWire
		}
		return value{kind: k, int: n}, nil
	case kindFloat:
		f, err := floatOf(text)
		return value{kind: k, re: f}, err
	case kindString, kindType, kindDecimal, kindFraction:
		return value{kind: k, text: text}, nil
	case kindBytes, kindByteArray, tagSurrogates:
		b, err := hex.DecodeString(text)
		if k == tagSurrogates {
			k = kindString
		}
		return value{kind: k, text: string(b)}, err
	}
	return value{}, errWire
}

// floatOf reads nan, inf, -inf, or Python's float.hex.
func floatOf(raw any) (float64, error) {
	text, _ := raw.(string)
	switch text {
	case "nan":
		return math.NaN(), nil
	case "inf":
		return math.Inf(1), nil
	case "-inf":
		return math.Inf(-1), nil
	}
	if !strings.Contains(text, "0x") {
		return 0, errWire
	}
	return strconv.ParseFloat(text, 64)
}

func holderOf(k kind, raw []any, deep int) (value, error) {
	switch k {
	case kindList, kindTuple, kindSet, kindFrozenSet, kindIterator:
	case kindDict:
		if len(raw)%2 != 0 {
			return value{}, errWire
		}
	default:
		return value{}, errWire
	}
	v := value{kind: k, items: make([]value, len(raw))}
	for i, r := range raw {
		var err error
		if v.items[i], err = fromWire(r, deep+1); err != nil {
			return value{}, err
		}
	}
	return v, nil
}

func clockOf(class, numbers any) (value, error) {
	name, _ := class.(string)
	list, ok := numbers.([]any)
	switch name {
	case "datetime", "date", "time", "timedelta":
	default:
		ok = false
	}
	if !ok || len(list) > 7 {
		return value{}, errWire
	}
	words := make([]string, len(list))
	for i, n := range list {
		number, ok := n.(json.Number)
		if _, err := strconv.Atoi(string(number)); !ok || err != nil {
			return value{}, errWire
		}
		words[i] = string(number)
	}
	return value{kind: kindClock, clock: clockText{name, strings.Join(words, " ")}}, nil
}

// fromJSON makes a value of a JSON text as a task's row holds it: numbers with a point or an exponent are floats.
func fromJSON(text []byte) (value, error) {
	raw, err := decodeJSON(text)
	if err != nil {
		return value{}, err
	}
	return fromRaw(raw, 0)
}

func fromRaw(raw any, deep int) (value, error) {
	if deep > deepest {
		return value{}, fmt.Errorf("nested more than %d deep", deepest)
	}
	switch r := raw.(type) {
	case nil:
		return value{kind: kindNone}, nil
	case bool:
		v := value{kind: kindBool, int: new(big.Int)}
		if r {
			v.int.SetInt64(1)
		}
		return v, nil
	case string:
		return value{kind: kindString, text: r}, nil
	case json.Number:
		return numberOf(string(r))
	case []any:
		v := value{kind: kindList, items: make([]value, len(r))}
		var err error
		for i, item := range r {
			if v.items[i], err = fromRaw(item, deep+1); err != nil {
				return value{}, err
			}
		}
		return v, nil
	case map[string]any:
		return dictOf(r, deep)
	}
	return value{}, fmt.Errorf("%T is nothing that JSON has", raw)
}

func numberOf(text string) (value, error) {
	if !strings.ContainsAny(text, ".eE") {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return value{}, fmt.Errorf("%q is no number", text)
		}
		return value{kind: kindInt, int: n}, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	return value{kind: kindFloat, re: f}, err
}

func dictOf(m map[string]any, deep int) (value, error) {
	v := value{kind: kindDict}
	for _, key := range sortedKeys(m) {
		item, err := fromRaw(m[key], deep+1)
		if err != nil {
			return value{}, err
		}
		v.items = append(v.items, value{kind: kindString, text: key}, item)
	}
	return v, nil
}
