package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// fieldList is how a struct is written to the journal: its fields that are not zero, each as
//
//	name   a byte, its length, and the name that its json tag has
//	size   uvarint, bytes of the value
//	value
//
// A field that the reader does not know is passed over, one that is not there stays zero. Values are
//
//	bool         a byte
//	integers     varint
//	floats       4 or 8 bytes, little endian
//	string, []byte   as it is
//	time         varint seconds since 1970, varint nanoseconds; read as UTC
//	pointer      what it points to
//	struct       its fields
//	list         of each entry its size, uvarint, and its value; a null among numbers has the size 0
//
// A null list is a zero field and an empty one is not, so both come back as they were.
type fieldList []field

type field struct {
	name  string
	index int
	form  valueForm
}

// valueForm writes and reads values of one type.
type valueForm struct {
	put  func(dst []byte, v reflect.Value) []byte
	take func(b []byte, v reflect.Value) error
}

// fieldListOf panics where a field has a type that has no form: a column was added that needs one.
func fieldListOf(t reflect.Type, without ...string) fieldList {
	var l fieldList
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || len(name) > math.MaxUint8 {
			panic(fmt.Sprintf("storage: field %s of %s has no name in its json tag", f.Name, t))
		}
		if !slices.Contains(without, name) {
			l = append(l, field{name, i, formOfType(f.Type)})
		}
	}
	return l
}

func (l fieldList) put(dst []byte, v reflect.Value) []byte {
	for _, f := range l {
		x := v.Field(f.index)
		if x.IsZero() {
			continue
		}
		dst = append(append(dst, byte(len(f.name))), f.name...)
		dst = appendSized(dst, x, f.form)
	}
	return dst
}

func (l fieldList) take(b []byte, v reflect.Value) error {
	next := 0
	for len(b) > 0 {
		name, rest, ok := cutBytes(b[1:], uint64(b[0]))
		value, rest, sized := cutSized(rest)
		if !ok || !sized {
			return errCut
		}
		if i := l.find(name, next); i >= 0 {
			next = i + 1
			if err := l[i].form.take(value, v.Field(l[i].index)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		b = rest
	}
	return nil
}

// find returns the field of that name, or -1. Fields were written in order: it is next, or not far behind it.
func (l fieldList) find(name []byte, next int) int {
	for i := range l {
		if at := (next + i) % len(l); l[at].name == string(name) {
			return at
		}
	}
	return -1
}

// appendSized writes a value behind its size, which is known when it was written and mostly takes one byte.
func appendSized(dst []byte, v reflect.Value, form valueForm) []byte {
	at := len(dst)
	dst = form.put(append(dst, 0), v)
	n := len(dst) - at - 1
	if n < 0x80 {
		dst[at] = byte(n)
		return dst
	}
	size := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64), uint64(n))
	return slices.Replace(dst, at, at+1, size...)
}

func cutSized(b []byte) (value, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return nil, nil, false
	}
	return cutBytes(b[size:], n)
}

func cutBytes(b []byte, n uint64) (head, rest []byte, ok bool) {
	if n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

func formOfType(t reflect.Type) valueForm {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return valueForm{putTime, takeTime}
	case t == reflect.TypeFor[[]byte]():
		return valueForm{putBytes, takeBytes}
	}
	switch t.Kind() {
	case reflect.Bool:
		return valueForm{putBool, takeBool}
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return valueForm{putInt, takeInt}
	case reflect.Float32:
		return valueForm{putFloat32, takeFloat32}
	case reflect.Float64:
		return valueForm{putFloat64, takeFloat64}
	case reflect.String:
		return valueForm{putString, takeString}
	case reflect.Pointer:
		return pointerForm(t)
	case reflect.Slice:
		return listForm(t)
	case reflect.Struct:
		l := fieldListOf(t)
		return valueForm{l.put, l.take}
	}
	panic(fmt.Sprintf("storage: %s has no form in the journal", t))
}

func putTime(dst []byte, v reflect.Value) []byte {
	t := v.Interface().(time.Time)
	return binary.AppendVarint(binary.AppendVarint(dst, t.Unix()), int64(t.Nanosecond()))
}

func takeTime(b []byte, v reflect.Value) error {
	seconds, n := binary.Varint(b)
	if n <= 0 {
		return errCut
	}
	nanos, m := binary.Varint(b[n:])
	if m <= 0 || n+m < len(b) || nanos < 0 || nanos >= int64(time.Second) {
		return errCut
	}
	v.Set(reflect.ValueOf(time.Unix(seconds, nanos).UTC()))
	return nil
}

func putBytes(dst []byte, v reflect.Value) []byte { return append(dst, v.Bytes()...) }

func takeBytes(b []byte, v reflect.Value) error {
	v.SetBytes(append(make([]byte, 0, len(b)), b...))
	return nil
}

func putString(dst []byte, v reflect.Value) []byte { return append(dst, v.String()...) }

func takeString(b []byte, v reflect.Value) error {
	v.SetString(string(b))
	return nil
}

func putBool(dst []byte, v reflect.Value) []byte { return append(dst, presence(v.Bool())) }

func takeBool(b []byte, v reflect.Value) error {
	if len(b) != 1 {
		return errCut
	}
	v.SetBool(b[0] != 0)
	return nil
}

func putInt(dst []byte, v reflect.Value) []byte { return binary.AppendVarint(dst, v.Int()) }

func takeInt(b []byte, v reflect.Value) error {
	n, size := binary.Varint(b)
	if size <= 0 || size < len(b) {
		return errCut
	}
	if v.OverflowInt(n) {
		return fmt.Errorf("%d is no %s", n, v.Kind())
	}
	v.SetInt(n)
	return nil
}

func putFloat32(dst []byte, v reflect.Value) []byte {
	return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(v.Float())))
}

func takeFloat32(b []byte, v reflect.Value) error {
	if len(b) != 4 {
		return errCut
	}
	v.SetFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	return nil
}

func putFloat64(dst []byte, v reflect.Value) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v.Float()))
}

func takeFloat64(b []byte, v reflect.Value) error {
	if len(b) != 8 {
		return errCut
	}
	v.SetFloat(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	return nil
}

func pointerForm(t reflect.Type) valueForm {
	to := formOfType(t.Elem())
	return valueForm{
		put: func(dst []byte, v reflect.Value) []byte { return to.put(dst, v.Elem()) },
		take: func(b []byte, v reflect.Value) error {
			p := reflect.New(t.Elem())
			v.Set(p)
			return to.take(b, p.Elem())
		},
	}
}

func listForm(t reflect.Type) valueForm {
	form := formOfType(t.Elem())
	if t.Elem().Kind() == reflect.Pointer {
		form = nullableForm(t.Elem(), form)
	}
	return valueForm{
		put: func(dst []byte, v reflect.Value) []byte {
			for i := range v.Len() {
				dst = appendSized(dst, v.Index(i), form)
			}
			return dst
		},
		take: func(b []byte, v reflect.Value) error {
			n, ok := countSized(b)
			if !ok {
				return errCut
			}
			list := reflect.MakeSlice(t, n, n)
			v.Set(list)
			for i := range n {
				var value []byte
				value, b, _ = cutSized(b)
				if err := form.take(value, list.Index(i)); err != nil {
					return fmt.Errorf("[%d]: %w", i, err)
				}
			}
			return nil
		},
	}
}

// nullableForm is that of entries that may be null; only numbers can, because a value of no bytes is null.
func nullableForm(t reflect.Type, of valueForm) valueForm {
	if kind := t.Elem().Kind(); kind != reflect.Float32 && kind != reflect.Float64 {
		panic(fmt.Sprintf("storage: a list of %s has no form in the journal", t))
	}
	return valueForm{
		put: func(dst []byte, v reflect.Value) []byte {
			if v.IsNil() {
				return dst
			}
			return of.put(dst, v)
		},
		take: func(b []byte, v reflect.Value) error {
			if len(b) == 0 {
				return nil
			}
			return of.take(b, v)
		},
	}
}

// countSized counts the entries of a list, so that it is allocated when all of it is there.
func countSized(b []byte) (n int, ok bool) {
	for len(b) > 0 {
		if _, b, ok = cutSized(b); !ok {
			return 0, false
		}
		n++
	}
	return n, true
}
