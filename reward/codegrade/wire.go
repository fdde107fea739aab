package codegrade

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// MarshalJSON writes a value as wire.py reads it.
func (v value) MarshalJSON() ([]byte, error) { return json.Marshal(v.wire()) }

func (v value) wire() []any {
	switch v.kind {
	case kindNone:
		return []any{v.kind}
	case kindBool:
		return []any{v.kind, v.int.Int64()}
	case kindInt:
		return []any{v.kind, v.int.Text(16)}
	case kindFloat:
		return []any{v.kind, floatText(v.re)}
	case kindComplex:
		return []any{v.kind, floatText(v.re), floatText(v.im)}
	case kindString:
		if !utf8.ValidString(v.text) {
			return []any{tagSurrogates, hex.EncodeToString([]byte(v.text))}
		}
		return []any{v.kind, v.text}
	case kindBytes, kindByteArray:
		return []any{v.kind, hex.EncodeToString([]byte(v.text))}
	case kindType, kindDecimal, kindFraction:
		return []any{v.kind, v.text}
	case kindRange:
		return []any{v.kind, v.items[0].int.Text(16), v.items[1].int.Text(16), v.items[2].int.Text(16)}
	case kindClock:
		return []any{v.kind, v.clock.class, json.RawMessage("[" + strings.ReplaceAll(v.clock.numbers, " ", ",") + "]")}
	}
	items := make([]any, len(v.items))
	for i, item := range v.items {
		items[i] = item.wire()
	}
	return []any{v.kind, items}
}

// floatText is as Python's float.fromhex reads it.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return strconv.FormatFloat(f, 'x', -1, 64)
}
