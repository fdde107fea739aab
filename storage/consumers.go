package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"
)

const consumersDir = "consumers" // in feed/

// ErrConsumer: the name is none that a consumer can have.
var ErrConsumer = errors.New("no name of a consumer")

// acknowledgement is feed/consumers/NAME.json.
type acknowledgement struct {
	Cursor string    `json:"cursor"`
	Acked  time.Time `json:"acked"`
}

// CheckConsumer says whether a consumer can have that name: it is that of a file.
func CheckConsumer(name string) error {
	if len(name) > 100 || !isFileName(name) {
		return fmt.Errorf("%w: expected up to 100 letters, digits, dots, dashes and underscores, found %.120q", ErrConsumer, name)
	}
	return nil
}

// loadConsumers reads what each has acknowledged. What was acknowledged of an order that is gone says nothing of this one.
func (o *Order) loadConsumers() error {
	folder := filepath.Join(o.log.folder, consumersDir)
	entries, err := o.fs.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("read what consumers acknowledged: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || CheckConsumer(name) != nil {
			continue
		}
		b, err := readFile(o.fs, filepath.Join(folder, e.Name()))
		if err != nil {
			return fmt.Errorf("read what consumer %s acknowledged: %w", name, err)
		}
		var a acknowledgement
		if err := json.Unmarshal(b, &a); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDamaged, filepath.Join(folder, e.Name()), err)
		}
		c, err := parseCursor(a.Cursor)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDamaged, filepath.Join(folder, e.Name()), err)
		}
		if o.has(c) {
			o.consumers[name] = c.index
		}
	}
	return nil
}

// Ack makes durable that a consumer needs no row below an index any more. It never goes back: what counts is returned.
func (o *Order) Ack(consumer string, index int64) (int64, error) {
	if err := CheckConsumer(consumer); err != nil {
		return 0, err
	}
	if index < 0 || index > o.Len() {
		return 0, fmt.Errorf("%w: index %d", ErrCursorGone, index)
	}
	o.acking.Lock()
	defer o.acking.Unlock()
	if was, ok := o.Acked(consumer); ok && was >= index {
		return was, nil
	}
	b, err := json.Marshal(acknowledgement{o.Cursor(index), time.Now().UTC().Truncate(time.Millisecond)})
	if err == nil {
		err = replaceFile(o.fs, filepath.Join(o.log.folder, consumersDir, consumer+".json"), append(b, '\n'))
	}
	if err != nil {
		return 0, fmt.Errorf("keep what consumer %s acknowledged: %w", consumer, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.consumers[consumer] = index
	return index, nil
}

// Acked is what a consumer has acknowledged; false where that is nothing yet.
func (o *Order) Acked(consumer string) (int64, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	index, ok := o.consumers[consumer]
	return index, ok
}

// Consumers is what each has acknowledged.
func (o *Order) Consumers() map[string]int64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return maps.Clone(o.consumers)
}
