package arrowrows

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"tranche/storage"
)

// ErrTooLarge: the text of one column of a batch is more than Arrow's 32-bit offsets can tell apart.
var ErrTooLarge = errors.New("too large for one Arrow batch")

// column is one field of a struct, and how its values go into Arrow and back. put panics with ErrTooLarge.
type column struct {
	field arrow.Field
	index int // in the struct
	put   func(b array.Builder, v reflect.Value)
	take  func(a arrow.Array, i int, v reflect.Value)
}

// ColumnNames lists the columns of a row in their order.
func ColumnNames() []string {
	var names []string
	for _, c := range structColumns(reflect.TypeFor[storage.Row]()) {
		names = append(names, c.field.Name)
	}
	return names
}

// CheckColumns says which names are those of no column, or come twice.
func CheckColumns(names []string) error {
	all, seen := ColumnNames(), map[string]bool{}
	var errs []error
	for _, n := range names {
		switch {
		case !slices.Contains(all, n):
			errs = append(errs, fmt.Errorf("there is no column %q; the columns are %s", n, strings.Join(all, ", ")))
		case seen[n]:
			errs = append(errs, fmt.Errorf("column %q comes twice", n))
		}
		seen[n] = true
	}
	return errors.Join(errs...)
}

// rowColumns are the columns of a row by name, in that order; no name = all.
func rowColumns(names []string) ([]column, error) {
	all := structColumns(reflect.TypeFor[storage.Row]())
	if len(names) == 0 {
		return all, nil
	}
	if err := CheckColumns(names); err != nil {
		return nil, err
	}
	var list []column
	for _, n := range names {
		i := slices.IndexFunc(all, func(c column) bool { return c.field.Name == n })
		list = append(list, all[i])
	}
	return list, nil
}

// structColumns reads the tags that make the Parquet schema, with the rules of pyarrow for what becomes of it.
func structColumns(t reflect.Type) []column {
	var list []column
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("parquet"), ",")
		c := columnOf(t.Field(i).Type)
		c.field.Name, c.index = name, i
		c.field.Nullable = slices.Contains(strings.Split(options, ","), "optional")
		list = append(list, c)
	}
	return list
}

// columnOf is a column without a name.
func columnOf(t reflect.Type) column {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return timeColumn()
	case t == reflect.TypeFor[[]byte]():
		return binaryColumn()
	case t.Kind() == reflect.Pointer:
		return pointerColumn(columnOf(t.Elem()))
	case t.Kind() == reflect.Slice:
		return listColumn(t)
	case t.Kind() == reflect.Struct:
		return structColumn(t)
	}
	return scalarColumn(t)
}

// pointerColumn is null where the pointer is nil.
func pointerColumn(c column) column {
	put, take := c.put, c.take
	c.field.Nullable = true
	c.put = func(b array.Builder, v reflect.Value) {
		if v.IsNil() {
			b.AppendNull()
			return
		}
		put(b, v.Elem())
	}
	c.take = func(a arrow.Array, i int, v reflect.Value) {
		if a.IsNull(i) {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		take(a, i, v.Elem())
	}
	return c
}

func listColumn(t reflect.Type) column {
	elem := columnOf(t.Elem())
	elem.field.Name = "element" // as in Parquet
	each := elements(t, elem)
	return column{
		field: arrow.Field{Type: arrow.ListOfField(elem.field)},
		put: func(b array.Builder, v reflect.Value) {
			l := b.(*array.ListBuilder)
			if v.IsNil() {
				l.AppendNull()
				return
			}
			if l.ValueBuilder().Len() > math.MaxInt32-v.Len() {
				panic(ErrTooLarge)
			}
			l.Append(true)
			each(l.ValueBuilder(), v)
		},
		take: func(a arrow.Array, i int, v reflect.Value) {
			l := a.(*array.List)
			if l.IsNull(i) {
				return
			}
			from, to := l.ValueOffsets(i)
			v.Set(reflect.MakeSlice(v.Type(), int(to-from), int(to-from)))
			for k := range v.Len() {
				elem.take(l.ListValues(), int(from)+k, v.Index(k))
			}
		},
	}
}

// elements puts the elements of a list; those of the long ones, tokens, without reflection.
func elements(t reflect.Type, elem column) func(b array.Builder, v reflect.Value) {
	switch t {
	case reflect.TypeFor[[]int32]():
		return func(b array.Builder, v reflect.Value) {
			b.(*array.Int32Builder).AppendValues(*v.Addr().Interface().(*[]int32), nil)
		}
	case reflect.TypeFor[[]int8]():
		return func(b array.Builder, v reflect.Value) {
			b.(*array.Int8Builder).AppendValues(*v.Addr().Interface().(*[]int8), nil)
		}
	case reflect.TypeFor[[]*float32]():
		return func(b array.Builder, v reflect.Value) {
			putFloats(b.(*array.Float32Builder), *v.Addr().Interface().(*[]*float32))
		}
	}
	return func(b array.Builder, v reflect.Value) {
		for i := range v.Len() {
			elem.put(b, v.Index(i))
		}
	}
}

func putFloats(b *array.Float32Builder, list []*float32) {
	b.Reserve(len(list))
	for _, f := range list {
		if f == nil {
			b.UnsafeAppendBoolToBitmap(false)
			continue
		}
		b.UnsafeAppend(*f)
	}
}

func structColumn(t reflect.Type) column {
	columns := structColumns(t)
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = c.field
	}
	return column{
		field: arrow.Field{Type: arrow.StructOf(fields...)},
		put: func(b array.Builder, v reflect.Value) {
			s := b.(*array.StructBuilder)
			s.Append(true)
			for i, c := range columns {
				c.put(s.FieldBuilder(i), v.Field(c.index))
			}
		},
		take: func(a arrow.Array, i int, v reflect.Value) {
			s := a.(*array.Struct)
			for k, c := range columns {
				c.take(s.Field(k), i, v.Field(c.index))
			}
		},
	}
}

func timeColumn() column {
	return column{
		field: arrow.Field{Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}},
		put: func(b array.Builder, v reflect.Value) {
			b.(*array.TimestampBuilder).Append(arrow.Timestamp(v.Addr().Interface().(*time.Time).UnixMicro()))
		},
		take: func(a arrow.Array, i int, v reflect.Value) {
			v.Set(reflect.ValueOf(time.UnixMicro(int64(a.(*array.Timestamp).Value(i))).UTC()))
		},
	}
}

func binaryColumn() column {
	return column{
		field: arrow.Field{Type: arrow.BinaryTypes.Binary},
		put: func(b array.Builder, v reflect.Value) {
			out := b.(*array.BinaryBuilder)
			if v.IsNil() {
				out.AppendNull()
				return
			}
			bounded(out.DataLen(), v.Len())
			out.Append(v.Bytes())
		},
		take: func(a arrow.Array, i int, v reflect.Value) {
			if !a.IsNull(i) {
				v.SetBytes(append([]byte{}, a.(*array.Binary).Value(i)...))
			}
		},
	}
}

func bounded(have, more int) {
	if have > math.MaxInt32-more {
		panic(ErrTooLarge)
	}
}

// scalarColumn is a column of single values; another kind of field in storage.Row is a bug that every test finds.
func scalarColumn(t reflect.Type) column {
	switch t.Kind() {
	case reflect.String:
		return column{
			field: arrow.Field{Type: arrow.BinaryTypes.String},
			put: func(b array.Builder, v reflect.Value) {
				out := b.(*array.StringBuilder)
				bounded(out.DataLen(), v.Len())
				out.Append(v.String())
			},
			take: func(a arrow.Array, i int, v reflect.Value) { v.SetString(strings.Clone(a.(*array.String).Value(i))) },
		}
	case reflect.Bool:
		return column{
			field: arrow.Field{Type: arrow.FixedWidthTypes.Boolean},
			put:   func(b array.Builder, v reflect.Value) { b.(*array.BooleanBuilder).Append(v.Bool()) },
			take:  func(a arrow.Array, i int, v reflect.Value) { v.SetBool(a.(*array.Boolean).Value(i)) },
		}
	case reflect.Int8:
		return column{
			field: arrow.Field{Type: arrow.PrimitiveTypes.Int8},
			put:   func(b array.Builder, v reflect.Value) { b.(*array.Int8Builder).Append(int8(v.Int())) },
			take:  func(a arrow.Array, i int, v reflect.Value) { v.SetInt(int64(a.(*array.Int8).Value(i))) },
		}
	case reflect.Int16:
		return column{
			field: arrow.Field{Type: arrow.PrimitiveTypes.Int16},
			put:   func(b array.Builder, v reflect.Value) { b.(*array.Int16Builder).Append(int16(v.Int())) },
			take:  func(a arrow.Array, i int, v reflect.Value) { v.SetInt(int64(a.(*array.Int16).Value(i))) },
		}
	case reflect.Int32:
		return column{
			field: arrow.Field{Type: arrow.PrimitiveTypes.Int32},
			put:   func(b array.Builder, v reflect.Value) { b.(*array.Int32Builder).Append(int32(v.Int())) },
			take:  func(a arrow.Array, i int, v reflect.Value) { v.SetInt(int64(a.(*array.Int32).Value(i))) },
		}
	case reflect.Int64:
		return column{
			field: arrow.Field{Type: arrow.PrimitiveTypes.Int64},
			put:   func(b array.Builder, v reflect.Value) { b.(*array.Int64Builder).Append(v.Int()) },
			take:  func(a arrow.Array, i int, v reflect.Value) { v.SetInt(a.(*array.Int64).Value(i)) },
		}
	case reflect.Float32:
		return column{
			field: arrow.Field{Type: arrow.PrimitiveTypes.Float32},
			put:   func(b array.Builder, v reflect.Value) { b.(*array.Float32Builder).Append(float32(v.Float())) },
			take:  func(a arrow.Array, i int, v reflect.Value) { v.SetFloat(float64(a.(*array.Float32).Value(i))) },
		}
	case reflect.Float64:
		return column{
			field: arrow.Field{Type: arrow.PrimitiveTypes.Float64},
			put:   func(b array.Builder, v reflect.Value) { b.(*array.Float64Builder).Append(v.Float()) },
			take:  func(a arrow.Array, i int, v reflect.Value) { v.SetFloat(a.(*array.Float64).Value(i)) },
		}
	}
	panic(fmt.Sprintf("arrowrows: a column of %s", t))
}
