package storage

import (
	"fmt"
	"path/filepath"
	"strings"
)

// WriteEndpoint replaces endpoints/NAME.json: what the caller knows of one server. It may be called while rows are written, until
// Close.
func (w *Writer) WriteEndpoint(name string, record any) error {
	if err := w.fs.MakeDir(filepath.Join(w.cfg.Dir, endpointsDir)); err != nil {
		return fmt.Errorf("make the folder of endpoint records: %w", err)
	}
	return w.replaceJSON(endpointFile(name), record)
}

// ReadEndpoint reads what WriteEndpoint left under that name in a run directory into record; false when there is nothing.
func ReadEndpoint(dir, name string, record any) (bool, error) {
	return readJSON(dir, endpointFile(name), record)
}

// endpointFile makes a file name of an address: what is no letter, digit, dot or dash becomes an underscore.
func endpointFile(name string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		}
		return '_'
	}, name)
	return filepath.Join(endpointsDir, safe+".json")
}
