package main

import (
	"fmt"
	"path/filepath"

	"tranche/storage"
)

// outsideRuns refuses a file that would lie in a run directory: it could replace a part of the dataset, or be read as one.
func outsideRuns(flag, file string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return nil // there is no such folder: whoever makes the file says so
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	for {
		if _, err := storage.OpenRun(dir); err == nil {
			return fmt.Errorf("%s %s: lies in the run directory %s; expected a place outside of it", flag, file, dir)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
	}
}
