package verify

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"tranche/episode"
	"tranche/storage"
)

func validText(r *row) (column, what string) {
	where, bad := invalidText(reflect.ValueOf(r.Row).Elem())
	if bad == "" {
		return "", ""
	}
	top, _, _ := strings.Cut(where, "[")
	top, _, _ = strings.Cut(top, ".")
	return top, fmt.Sprintf("%s is no valid UTF-8: %.40q", where, bad)
}

// invalidText finds the first string at any depth that is none, and says where. Lists of numbers and bytes are passed over.
func invalidText(v reflect.Value) (where, bad string) {
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); !utf8.ValidString(s) {
			return "", s
		}
	case reflect.Pointer:
		if k := v.Type().Elem().Kind(); !v.IsNil() && (k == reflect.String || k == reflect.Struct) {
			return invalidText(v.Elem())
		}
	case reflect.Slice:
		if k := v.Type().Elem().Kind(); k != reflect.Struct && k != reflect.String {
			return "", ""
		}
		for i := range v.Len() {
			if where, bad := invalidText(v.Index(i)); bad != "" {
				return fmt.Sprintf("[%d]%s", i, dotted(where)), bad
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			if where, bad := invalidText(v.Field(i)); bad != "" {
				return columnName(f) + dotted(where), bad
			}
		}
	}
	return "", ""
}

func columnName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
	return name
}

func dotted(where string) string {
	if where == "" || where[0] == '[' {
		return where
	}
	return "." + where
}

func validJSON(r *row) (column, what string) {
	for _, c := range []struct {
		name, form string
		text       *string
		into       any
	}{{"tools", "list", r.Tools, &[]json.RawMessage{}}, {"sampling", "object", r.Sampling, &map[string]json.RawMessage{}}, {"extra_info", "object", r.ExtraInfo, &map[string]json.RawMessage{}}} {
		if c.text == nil {
			continue
		}
		if err := json.Unmarshal([]byte(*c.text), c.into); err != nil {
			return c.name, fmt.Sprintf("%s is no JSON %s: %.120v", c.name, c.form, err)
		}
	}
	return "", ""
}

func flagsFit(r *row) (column, what string) {
	for i := 1; i < len(r.Flags); i++ {
		if r.Flags[i] <= r.Flags[i-1] {
			return "flags", fmt.Sprintf("flags are %v", r.Flags)
		}
	}
	if slices.Contains(r.Flags, "") {
		return "flags", "a flag is empty"
	}
	unknown := slices.ContainsFunc(r.Turns, func(t storage.Turn) bool { return t.PromptTokens == nil || t.CompletionTokens == nil })
	if unknown != r.flagged(episode.FlagUsageMissing) {
		return "flags", fmt.Sprintf("the flag %s is there: %v; that a turn has no counts: %v", episode.FlagUsageMissing, !unknown, unknown)
	}
	return "", ""
}
