package storage

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// meaning is what the bytes of a column are, where the Arrow type that the decoder gives it no longer says so.
type meaning int

const (
	asTyped meaning = iota
	asText          // an enum
	asJSON
	asUUID
)

// reading is how the values of a column become JSON.
type reading struct {
	leaf   meaning
	bare   bool      // a struct that is none: its one member is the value
	inside []reading // of a struct: its members; of a list: its elements
}

// readingsOf takes those of all columns from the file's own schema.
func readingsOf(fields []pqarrow.SchemaField, columns *schema.Schema) []reading {
	all := make([]reading, len(fields))
	for i, f := range fields {
		if f.IsLeaf() {
			all[i].leaf = meaningOf(columns.Column(f.ColIndex).LogicalType())
			continue
		}
		all[i].inside = readingsOf(f.Children, columns)
		all[i].bare = bareList(f, columns)
	}
	return all
}

// bareList knows the list in a list of files in which a list has two levels and not three: the repeated group is itself the inner list, and the
// decoder takes it for a struct around it.
func bareList(f pqarrow.SchemaField, columns *schema.Schema) bool {
	if f.Field.Type.ID() != arrow.STRUCT || len(f.Children) != 1 || len(f.Children[0].Children) != 1 || !f.Children[0].Children[0].IsLeaf() {
		return false
	}
	group := columns.Column(f.Children[0].Children[0].ColIndex).SchemaNode().Parent()
	return group != nil && group.Name() == f.Field.Name && group.ConvertedType() == schema.ConvertedTypes.List && group.RepetitionType() == parquet.Repetitions.Repeated
}

func meaningOf(t schema.LogicalType) meaning {
	switch t.(type) {
	case schema.EnumLogicalType:
		return asText
	case schema.JSONLogicalType:
		return asJSON
	case schema.UUIDLogicalType:
		return asUUID
	}
	return asTyped
}

// appendValue writes value i of a column as JSON behind out.
func (r reading) appendValue(out []byte, column arrow.Array, i int) ([]byte, error) {
	if column.IsNull(i) {
		return append(out, "null"...), nil
	}
	switch c := column.(type) {
	case *array.Struct:
		return r.appendStruct(out, c, i)
	case *array.Dictionary:
		return r.appendValue(out, c.Dictionary(), c.GetValueIndex(i))
	case array.ExtensionArray:
		return r.appendValue(out, c.Storage(), i)
	case array.ListLike:
		return r.appendList(out, c, i)
	case array.StringLike:
		return r.appendString(out, c.Value(i)), nil
	case *array.Binary:
		return r.appendBytes(out, c.Value(i)), nil
	case *array.LargeBinary:
		return r.appendBytes(out, c.Value(i)), nil
	case *array.FixedSizeBinary:
		return r.appendBytes(out, c.Value(i)), nil
	case *array.Float16:
		return appendFloat(out, float64(c.Value(i).Float32()), 32), nil
	case *array.Float32:
		return appendFloat(out, float64(c.Value(i)), 32), nil
	case *array.Float64:
		return appendFloat(out, c.Value(i), 64), nil
	case *array.Decimal128:
		return strconv.AppendQuote(out, c.Value(i).ToString(c.DataType().(arrow.DecimalType).GetScale())), nil
	case *array.Decimal256:
		return strconv.AppendQuote(out, c.Value(i).ToString(c.DataType().(arrow.DecimalType).GetScale())), nil
	}
	value, err := json.Marshal(column.GetOneForMarshal(i)) // whole numbers, booleans, times
	return append(out, value...), err
}

func (r reading) appendStruct(out []byte, c *array.Struct, i int) ([]byte, error) {
	if r.bare {
		return r.at(0).appendValue(out, c.Field(0), i)
	}
	names := c.DataType().(*arrow.StructType).Fields()
	out = append(out, '{')
	for k := range c.NumField() {
		if k > 0 {
			out = append(out, ',')
		}
		out = append(appendQuoted(out, names[k].Name), ':')
		var err error
		if out, err = r.at(k).appendValue(out, c.Field(k), i); err != nil {
			return nil, fmt.Errorf("%s: %w", names[k].Name, err)
		}
	}
	return append(out, '}'), nil
}

func (r reading) appendList(out []byte, c array.ListLike, i int) ([]byte, error) {
	from, to := c.ValueOffsets(i)
	out = append(out, '[')
	for k := from; k < to; k++ {
		if k > from {
			out = append(out, ',')
		}
		var err error
		if out, err = r.at(0).appendValue(out, c.ListValues(), int(k)); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// at is the reading of a member; one that the schema does not tell of is the plain one.
func (r reading) at(k int) reading {
	if k < len(r.inside) {
		return r.inside[k]
	}
	return reading{}
}

func (r reading) appendBytes(out, b []byte) []byte {
	switch {
	case r.leaf == asJSON && json.Valid(b):
		return append(out, b...)
	case r.leaf == asUUID && len(b) == 16:
		return appendUUID(out, b)
	case r.leaf == asText || r.leaf == asJSON:
		return appendQuoted(out, b)
	}
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, b)
	return append(out, '"')
}

func (r reading) appendString(out []byte, s string) []byte {
	if r.leaf == asJSON && json.Valid([]byte(s)) {
		return append(out, s...)
	}
	return appendQuoted(out, s)
}

func appendUUID(out, b []byte) []byte {
	out = append(out, '"')
	for i, n := range []int{0, 4, 6, 8, 10} {
		if i > 0 {
			out = append(out, '-')
		}
		end := []int{4, 6, 8, 10, 16}[i]
		out = hex.AppendEncode(out, b[n:end])
	}
	return append(out, '"')
}

// appendQuoted writes a JSON string. Bytes that are no UTF-8 stay what they are: who takes the row can name them, and put in their place they would be
// other text without a word.
func appendQuoted[T string | []byte](out []byte, s T) []byte {
	const digits = "0123456789abcdef"
	out = append(out, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < ' ':
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}

// appendFloat writes the shortest text that is the number again; NaN and the infinities are strings.
func appendFloat(out []byte, v float64, bits int) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.AppendQuote(out, strconv.FormatFloat(v, 'g', -1, bits))
	}
	if bits == 32 {
		b, _ := json.Marshal(float32(v)) // a finite number
		return append(out, b...)
	}
	b, _ := json.Marshal(v) // a finite number
	return append(out, b...)
}
