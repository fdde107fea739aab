package reward

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Kind is how a package offers a grader to New.
type Kind struct {
	Name string // what Spec.Kind says; the part of the grader's ID before the /
	// Make makes the grader of one spec. It is called when settings are checked and again when a run begins, so it does nothing that costs, and what it opens
	// a Close method of the grader must give back; the Scorer calls that. Its error names the option that is wrong.
	Make func(s Spec) (Grader, error)
	// Waits says that its graders wait for others (a model, a service) and use no core here: many more of them go on at once.
	Waits bool
	// MakeGroup stands in the place of Make for a grader that judges all samples of a group at once.
	MakeGroup func(s Spec) (GroupGrader, error)
}

// Fixed offers one grader that takes no options of its own.
func Fixed(g Grader) Kind {
	name, _, _ := strings.Cut(g.ID(), "/")
	return Kind{Name: name, Make: func(s Spec) (Grader, error) { return g, ReadOptions(s, &struct{}{}) }}
}

// make builds the grader of a spec and holds its id to the kind.
func (k Kind) make(s Spec) (Grader, error) {
	g, err := k.Make(s)
	if err != nil {
		return nil, err
	}
	return g, k.checkID(g.ID())
}

func (k Kind) makeGroup(s Spec) (GroupGrader, error) {
	g, err := k.MakeGroup(s)
	if err != nil {
		return nil, err
	}
	return g, k.checkID(g.ID())
}

func (k Kind) checkID(id string) error {
	if kind, version, ok := strings.Cut(id, "/"); !ok || kind != k.Name || version == "" {
		return fmt.Errorf("grader id %q: expected %s/ and a version", id, k.Name)
	}
	return nil
}

// ReadOptions decodes Spec.With into a struct, by the json names of its fields; - and _ in a name are the same. What With does not
// name keeps its value, so that the caller fills in defaults first. A time.Duration, anywhere in it, is a string such as "10s". It
// reports every unknown key and every wrong value at once.
func ReadOptions(s Spec, into any) error {
	if len(bytes.TrimSpace(s.With)) == 0 {
		return nil
	}
	return errors.Join(readOptions("", s.With, reflect.ValueOf(into).Elem())...)
}

// readOptions decodes one value; at is its path for messages.
func readOptions(at string, raw json.RawMessage, into reflect.Value) []error {
	if _, own := into.Addr().Interface().(json.Unmarshaler); own {
		return decodeOption(at, raw, into)
	}
	switch {
	case into.Type() == reflect.TypeFor[time.Duration]():
		return readDuration(at, raw, into)
	case into.Kind() == reflect.Struct:
		return readStruct(at, raw, into)
	case into.Kind() == reflect.Pointer && string(raw) != "null":
		into.Set(reflect.New(into.Type().Elem()))
		return readOptions(at, raw, into.Elem())
	case into.Kind() == reflect.Slice && into.Type() != reflect.TypeFor[json.RawMessage]() && string(raw) != "null":
		return readSlice(at, raw, into)
	}
	return decodeOption(at, raw, into)
}

func readSlice(at string, raw json.RawMessage, into reflect.Value) (errs []error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return []error{fmt.Errorf("%s: expected a list, found %s", at, Clip(string(raw), 80))}
	}
	list := reflect.MakeSlice(into.Type(), len(items), len(items))
	for i, item := range items {
		errs = append(errs, readOptions(fmt.Sprintf("%s[%d]", at, i), item, list.Index(i))...)
	}
	into.Set(list)
	return errs
}

func readDuration(at string, raw json.RawMessage, into reflect.Value) []error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if d, err := time.ParseDuration(text); err == nil {
			into.SetInt(int64(d))
			return nil
		}
	}
	return []error{fmt.Errorf(`%s: expected a time with its unit such as "10s", found %s`, at, Clip(string(raw), 80))}
}

func readStruct(at string, raw json.RawMessage, into reflect.Value) (errs []error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return []error{fmt.Errorf("%s: expected a map of options, found %s", cmp.Or(at, "options"), Clip(string(raw), 80))}
	}
	known := map[string]reflect.Value{}
	for i := range into.NumField() {
		if f := into.Type().Field(i); f.IsExported() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			known[dashed(cmp.Or(name, strings.ToLower(f.Name)))] = into.Field(i)
		}
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		path := strings.TrimPrefix(at+"."+name, ".")
		field, ok := known[dashed(name)]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s: unknown option%s", path, listed(known)))
		case seen[dashed(name)]:
			errs = append(errs, fmt.Errorf("%s: is given twice (- and _ are the same)", path))
		default:
			errs = append(errs, readOptions(path, given[name], field)...)
		}
		seen[dashed(name)] = true
	}
	return errs
}

func listed(known map[string]reflect.Value) string {
	if len(known) == 0 {
		return "; this kind takes none"
	}
	return ", expected one of " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

func decodeOption(at string, raw json.RawMessage, into reflect.Value) []error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into.Addr().Interface())
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return []error{fmt.Errorf("%s: expected %s, found %s", at, typeWord(into.Type()), Clip(string(raw), 80))}
	case err != nil:
		return []error{fmt.Errorf("%s: %w", at, err)}
	}
	return nil
}

// typeWord names what an option's value should be, in words of a settings file.
func typeWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Map:
		return "a map of names to values"
	}
	if t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 {
		return "a whole number"
	}
	return "a " + t.String()
}

func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

// Decided is a Grader whose options do not say all that decides its verdicts, or more: a file counts by what is in it, not by where it lies.
type Decided interface {
	// Decides stands in the place of the options in the digest of the grader's settings.
	Decides() string
}

// Timed is a Grader with a time of its own for one grading in the place of Config.Timeout; 0 = that one.
type Timed interface{ Timeout() time.Duration }

// digest identifies all that decides what a grader says: its id and its options, whatever their order and spelling. Name and weight
// are no part of it; they stand beside it in every row.
func (s Spec) digest(id string, of any) string {
	with, err := canonical(s.With)
	if err != nil {
		with = string(s.With)
	}
	if d, ok := of.(Decided); ok {
		with = d.Decides()
	}
	text, err := json.Marshal(struct {
		ID, From, Marker, Pattern string
		Normalize                 []string
		Tolerance                 float64
		With                      string
	}{id, s.From, s.Marker, s.Pattern, s.Normalize, s.Tolerance, with})
	if err != nil {
		panic("reward: " + err.Error()) // Validate has refused tolerances that are not finite
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// canonical writes a JSON object with its keys in order and without spaces; numbers stay as they were written.
func canonical(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "{}", nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	return string(text), err
}
