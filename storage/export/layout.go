package export

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"tranche/storage"
)

// toolsField is the field of a record that holds tools as JSON. A Parquet file has another type in its place.
const toolsField = "Tools"

// layout is how records with tools lie in a Parquet file.
type layout struct {
	laid  reflect.Type
	from  []int // field of the record, by field of laid
	tools int   // field of laid; -1 = there are none
}

// layout puts the tools of the shape's records into a column. Where they are a list, it reads the run for the type that all of them have.
func (e *Export) layout(ctx context.Context, run *storage.Run) (*layout, error) {
	record := reflect.TypeOf(e.shape.record)
	switch e.cfg.Tools {
	case AsText:
		return newLayout(record, reflect.StructField{Name: toolsField, Type: reflect.TypeFor[*string](), Tag: `parquet:"tools,optional"`}), nil
	case AsNone:
		return newLayout(record, reflect.StructField{}), nil
	}
	known, err := e.learnTools(ctx, run)
	if err != nil || known.kind == kindNull { // no row has tools
		return newLayout(record, reflect.StructField{}), err
	}
	list, err := known.goType("tools")
	if err == nil && known.kind != kindList {
		err = fmt.Errorf("they are %s", known.kind)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTools, err)
	}
	return newLayout(record, reflect.StructField{Name: toolsField, Type: list, Tag: `parquet:"tools,optional,list"`}), nil
}

// newLayout puts tools in the place of the record's own field; without a type there is none.
func newLayout(record reflect.Type, tools reflect.StructField) *layout {
	l := &layout{tools: -1}
	var fields []reflect.StructField
	for i := range record.NumField() {
		f := record.Field(i)
		if f.Name == toolsField {
			if tools.Type == nil {
				continue
			}
			l.tools, f = len(fields), tools
		}
		fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
		l.from = append(l.from, i)
	}
	l.laid = reflect.StructOf(fields)
	return l
}

func (l *layout) model() any { return reflect.New(l.laid).Elem().Interface() }

var errNewTools = errors.New("tools that were not there when their type was read")

// lay copies a record into the file's type. Tools that have no place there are an error: they would be lost in silence.
func (l *layout) lay(record any) (any, error) {
	from, to := reflect.ValueOf(record), reflect.New(l.laid).Elem()
	if tools := from.FieldByName(toolsField).Bytes(); l.tools < 0 && len(tools) > 0 && string(tools) != "null" { // --tools none has nothing here
		return nil, errNewTools
	}
	for i, f := range l.from {
		if i != l.tools {
			to.Field(i).Set(from.Field(f))
			continue
		}
		in := json.NewDecoder(bytes.NewReader(from.Field(f).Bytes()))
		in.DisallowUnknownFields()
		if err := in.Decode(to.Field(i).Addr().Interface()); err != nil {
			return nil, fmt.Errorf("%w: %w", errNewTools, err)
		}
	}
	return to.Interface(), nil
}

// learnTools reads the tools of all rows that are taken. Lists that were seen before are not looked at again.
func (e *Export) learnTools(ctx context.Context, run *storage.Run) (*node, error) {
	known, seen := &node{kind: kindNull}, map[[sha256.Size]byte]bool{}
	for r, err := range run.Heads() {
		switch {
		case err != nil:
			return known, err
		case ctx.Err() != nil:
			return known, context.Cause(ctx)
		case !e.cfg.Filter.Match(r):
			continue
		}
		defs, why := e.cfg.toolsOf(r)
		if sum := sha256.Sum256(defs); why != "" || seen[sum] {
			continue
		} else {
			seen[sum] = true
		}
		if err := known.learn(defs, "tools", e.cfg.Tools == AsUnion); err != nil {
			return known, fmt.Errorf("%w: %w", ErrTools, err)
		}
	}
	return known, nil
}
