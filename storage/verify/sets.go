package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"reflect"
	"slices"
	"time"

	"tranche/storage"
)

// rewardColumns are those that rescoring may change.
func rewardColumns() []string {
	return []string{"reward", "scored", "rewards", "turn_credit", "credits", "advantage", "flags"}
}

// pair holds a file of rescored rewards to the one it stands for: the same rows in the same order, and nothing but rewards changed.
func (v *Verifier) pair(ctx context.Context, f *storage.PartFile, p, own storage.Part) error {
	other, err := v.run.Inspect(own)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is told there
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", own.Path, err)
	}
	defer other.Close()
	if other.Bytes != own.Bytes || other.Footer() != nil || len(other.Schema().Wrong) > 0 {
		return nil
	}
	next, stop := iter.Pull2(other.Rows())
	defer stop()
	n := int64(0)
	for r, err := range f.Rows() {
		was, werr, ok := next()
		at := Place{File: p.Path, Row: new(n)}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil || werr != nil:
			return nil // it was told when the file was read
		case !ok:
			at.What = fmt.Sprintf("%s has %d rows", own.Path, n)
			v.find("reward-set", at)
			return nil
		}
		at.Episode = r.EpisodeID
		if column := changed(was, r); column != "" {
			at.Column, at.What = column, fmt.Sprintf("%s differs from that of the row in %s", column, own.Path)
			v.find("reward-set", at)
		}
		n++
	}
	if _, err, more := next(); more && err == nil {
		v.find("reward-set", Place{File: p.Path, What: fmt.Sprintf("it has %d rows, %s has more", n, own.Path)})
	}
	return nil
}

// changed is the first column but those of rewards in which two rows differ; "" = none.
func changed(a, b *storage.Row) string {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		name := columnName(x.Type().Field(i))
		if !slices.Contains(rewardColumns(), name) && !equal(x.Field(i), y.Field(i)) {
			return name
		}
	}
	return ""
}

// equal compares bit by bit, so that NaN is NaN. No list and an empty one are the same: a file of before a column is read as either.
func equal(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() && b.IsNil()
		}
		return equal(a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !equal(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Struct:
		if at, ok := a.Interface().(time.Time); ok {
			return at.Equal(b.Interface().(time.Time))
		}
		for i := range a.NumField() {
			if !equal(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Float32, reflect.Float64:
		return math.Float64bits(a.Float()) == math.Float64bits(b.Float())
	}
	return a.Equal(b)
}
