package arrowrows

import (
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// CheckFile reads every batch of an IPC file of ours and compares the number of its rows.
func CheckFile(path string, rows int64) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", path, p)
		}
	}()
	in, err := ipc.NewFileReader(f)
	if err != nil {
		return err
	}
	defer in.Close()
	n := int64(0)
	for i := range in.NumRecords() {
		batch, err := in.RecordBatchAt(i)
		if err != nil {
			return fmt.Errorf("%s: batch %d: %w", path, i, err)
		}
		n += batch.NumRows()
		batch.Release()
	}
	if n != rows {
		return fmt.Errorf("%s: it has %d rows, written were %d", path, n, rows)
	}
	return nil
}
