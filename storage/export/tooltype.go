package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
)

// ErrTools: the tools of a run have no type in Parquet in which each of them is what it was.
var ErrTools = errors.New("the tools cannot be a list in Parquet")

type kind string

const (
	kindNull   kind = "null"
	kindText   kind = "text"
	kindWhole  kind = "a whole number"
	kindFloat  kind = "a number"
	kindBool   kind = "true or false"
	kindObject kind = "an object"
	kindList   kind = "a list"
)

// node is the type of all JSON values at one place.
type node struct {
	kind   kind
	keys   []string         // of an object, in order
	fields map[string]*node // of an object
	elem   *node            // of a list
}

// learn widens the type by a value. A Parquet struct has every key in every row, so an object whose keys are others than those of the objects before it
// would come back with keys that it does not have, as null, and a chat template prints them: that is refused unless union says that it is meant.
func (n *node) learn(raw json.RawMessage, path string, union bool) error {
	was, is := n.kind, kindOf(raw)
	switch {
	case is == kindNull:
		return nil
	case was == kindNull:
		n.kind = is
	case was != is:
		return fmt.Errorf("%s is %s in one place and %s in another", path, was, is)
	}
	switch is {
	case kindObject:
		return n.learnObject(raw, path, union, was == kindNull)
	case kindList:
		return n.learnList(raw, path, union)
	}
	return nil
}

func (n *node) learnObject(raw json.RawMessage, path string, union, first bool) error {
	keys, values, err := object(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !first && !union && !slices.Equal(keys, n.keys) {
		return fmt.Errorf("%s has the keys %q in one place and %q in another", path, n.keys, keys)
	}
	if n.fields == nil {
		n.fields = map[string]*node{}
	}
	for i, key := range keys {
		if n.fields[key] == nil {
			n.fields[key] = &node{kind: kindNull}
			n.keys = append(n.keys, key)
		}
		if err := n.fields[key].learn(values[i], path+"."+key, union); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) learnList(raw json.RawMessage, path string, union bool) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if n.elem == nil {
		n.elem = &node{kind: kindNull}
	}
	for _, v := range list {
		if kindOf(v) == kindNull {
			return fmt.Errorf("%s has a null in its list", path)
		}
		if err := n.elem.learn(v, path+"[]", union); err != nil {
			return err
		}
	}
	return nil
}

func kindOf(raw json.RawMessage) kind {
	text := bytes.TrimSpace(raw)
	switch {
	case len(text) == 0 || text[0] == 'n':
		return kindNull
	case text[0] == '"':
		return kindText
	case text[0] == 't' || text[0] == 'f':
		return kindBool
	case text[0] == '{':
		return kindObject
	case text[0] == '[':
		return kindList
	case bytes.ContainsAny(text, ".eE"):
		return kindFloat
	}
	return kindWhole
}

// object takes a JSON object apart and keeps the order of its keys.
func object(raw json.RawMessage) (keys []string, values []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, nil, err
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, nil, err
		}
		key, _ := token.(string)
		if slices.Contains(keys, key) {
			return nil, nil, fmt.Errorf("the key %q comes twice", key)
		}
		keys, values = append(keys, key), append(values, v)
	}
	return keys, values, nil
}

// plainName is a key that can be the name of a column here.
var plainName = regexp.MustCompile(`^[\p{L}_$][\p{L}\p{Nd}_$.-]*$`)

// goType is the Go type whose columns hold such values.
func (n *node) goType(path string) (reflect.Type, error) {
	switch n.kind {
	case kindWhole:
		return reflect.TypeFor[*int64](), nil
	case kindFloat:
		return reflect.TypeFor[*float64](), nil
	case kindBool:
		return reflect.TypeFor[*bool](), nil
	case kindObject:
		t, err := n.structType(path)
		if err != nil {
			return nil, err
		}
		return reflect.PointerTo(t), nil
	case kindList:
		return n.sliceType(path)
	}
	return reflect.TypeFor[*string](), nil // text, or a null that tells no type
}

func (n *node) structType(path string) (reflect.Type, error) {
	if len(n.keys) == 0 {
		return nil, fmt.Errorf("%s is always an empty object, which Parquet does not have", path)
	}
	fields := make([]reflect.StructField, len(n.keys))
	for i, key := range n.keys {
		if !plainName.MatchString(key) {
			return nil, fmt.Errorf("%s has the key %q, which cannot name a column", path, key)
		}
		t, err := n.fields[key].goType(path + "." + key)
		if err != nil {
			return nil, err
		}
		options := "optional"
		if t.Kind() == reflect.Slice {
			options += ",list"
		}
		fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: t, Tag: reflect.StructTag(fmt.Sprintf(`parquet:"%s,%s" json:"%s"`, key, options, key))}
	}
	return reflect.StructOf(fields), nil
}

func (n *node) sliceType(path string) (reflect.Type, error) {
	if n.elem.kind == kindList {
		return nil, fmt.Errorf("%s is a list of lists", path)
	}
	t, err := n.elem.goType(path + "[]")
	if err != nil {
		return nil, err
	}
	return reflect.SliceOf(t.Elem()), nil // no element is null
}
