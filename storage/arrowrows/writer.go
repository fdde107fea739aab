package arrowrows

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"tranche/storage"
)

// Config says how rows are written. The zero value writes all columns, uncompressed.
type Config struct {
	// Columns are those that are written, in that order. Default: all.
	Columns []string
	// Zstd compresses the buffers of each batch. Every Arrow reader since 2020 takes them. Default: they are as they are in memory.
	Zstd bool
	// BatchBytes closes a batch, bytes of whole rows before encoding (Row.Bytes). A larger row makes a larger batch. Default 8 MiB.
	BatchBytes int64
	// Mem is where batches are made. Default: Go's own memory.
	Mem memory.Allocator
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	err := CheckColumns(c.Columns)
	if c.BatchBytes < 0 || c.BatchBytes > MaxRowBytes {
		err = errors.Join(err, fmt.Errorf("arrowrows: BatchBytes is %d: expected 0 (default) to %d", c.BatchBytes, MaxRowBytes))
	}
	return err
}

func (c Config) withDefaults() Config {
	if c.BatchBytes == 0 {
		c.BatchBytes = 8 << 20
	}
	if c.Mem == nil {
		c.Mem = memory.DefaultAllocator
	}
	return c
}

// Writer writes rows as Arrow IPC. It is for one goroutine.
type Writer struct {
	builder *Builder
	out     batchWriter
	cfg     Config
	rows    int64
}

// batchWriter is an IPC stream or file.
type batchWriter interface {
	Write(arrow.RecordBatch) error
	Close() error
}

// NewStream begins an IPC stream. Nothing is written before the first Flush or Close.
func NewStream(w io.Writer, cfg Config) (*Writer, error) {
	return newWriter(cfg, func(options []ipc.Option) (batchWriter, error) { return ipc.NewWriter(w, options...), nil })
}

// NewFile begins an IPC file, which is whole when Close has returned nil.
func NewFile(w io.Writer, cfg Config) (*Writer, error) {
	return newWriter(cfg, func(options []ipc.Option) (batchWriter, error) { return ipc.NewFileWriter(w, options...) })
}

func newWriter(cfg Config, open func([]ipc.Option) (batchWriter, error)) (*Writer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	builder, err := NewBuilder(cfg.Mem, cfg.Columns...)
	if err != nil {
		return nil, err
	}
	options := []ipc.Option{ipc.WithSchema(builder.schema), ipc.WithAllocator(cfg.Mem)}
	if cfg.Zstd {
		options = append(options, ipc.WithZstd(), ipc.WithCompressConcurrency(1))
	}
	out, err := open(options)
	if err != nil {
		builder.Release()
		return nil, fmt.Errorf("begin Arrow IPC: %w", err)
	}
	return &Writer{builder: builder, out: out, cfg: cfg}, nil
}

// Fits reports whether a row still belongs into the batch that is being made.
func (w *Writer) Fits(r *storage.Row) bool {
	return w.builder.Rows() == 0 || w.builder.Bytes()+r.Bytes() <= w.cfg.BatchBytes
}

// Full reports whether the batch has its size.
func (w *Writer) Full() bool { return w.builder.Bytes() >= w.cfg.BatchBytes }

// Pending is how many rows the batch has so far.
func (w *Writer) Pending() int { return w.builder.Rows() }

// Rows is how many rows were added.
func (w *Writer) Rows() int64 { return w.rows }

// Add puts a row into the batch, and writes the batch before where it does not fit any more.
func (w *Writer) Add(r *storage.Row) error {
	if !w.Fits(r) {
		if err := w.Flush(nil); err != nil {
			return err
		}
	}
	if err := w.builder.Append(r); err != nil {
		return err
	}
	w.rows++
	return nil
}

// Flush writes what was added as one batch, none included. meta goes with it: pyarrow hands it out beside the batch.
func (w *Writer) Flush(meta map[string]string) error {
	batch := w.builder.Batch(meta)
	defer batch.Release()
	if err := w.out.Write(batch); err != nil {
		return fmt.Errorf("write an Arrow batch: %w", err)
	}
	return nil
}

// Close writes what was added and the end: without it, a reader tells that something is missing.
func (w *Writer) Close() error {
	var err error
	if w.Pending() > 0 {
		err = w.Flush(nil)
	}
	w.builder.Release()
	if err == nil {
		err = w.out.Close()
	}
	return err
}

// Abandon frees memory and writes nothing more.
func (w *Writer) Abandon() { w.builder.Release() }

// WriteFile writes rows as an IPC file and returns how many.
func WriteFile(w io.Writer, rows iter.Seq2[*storage.Row, error], cfg Config) (int64, error) {
	out, err := NewFile(w, cfg)
	if err != nil {
		return 0, err
	}
	return out.all(rows)
}

// WriteStream writes rows as an IPC stream and returns how many.
func WriteStream(w io.Writer, rows iter.Seq2[*storage.Row, error], cfg Config) (int64, error) {
	out, err := NewStream(w, cfg)
	if err != nil {
		return 0, err
	}
	return out.all(rows)
}

func (w *Writer) all(rows iter.Seq2[*storage.Row, error]) (int64, error) {
	for r, err := range rows {
		if err == nil {
			err = w.Add(r)
		}
		if err != nil {
			w.Abandon()
			return w.rows, err
		}
	}
	return w.rows, w.Close()
}
