// Package arrowrows puts rows into Arrow record batches and back, and writes them as Arrow IPC files and streams. The schema is the one that
// pyarrow reads from a Parquet part of ours: the same names, types and nullability, so that both open as one table.
//
// It will not read a run or choose rows; it knows no HTTP. Open writer.go first: a Writer is rows in, IPC out. Then columns.go, where
// storage.Row becomes a schema by its own tags, so that a new column needs no line here.
package arrowrows
