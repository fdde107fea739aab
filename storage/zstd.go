package storage

import (
	"errors"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// zstdCodec compresses Parquet pages at zstd's fastest level. parquet-go's own codec does the same with a window of several
// MiB an encoder and buffers that grow by doubling; pages are small, and one encoder serves a part after the other. It is
// used by one goroutine, the sealer.
type zstdCodec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// zstdWindow is four pages: enough to match the prompt that the samples of a group share.
const zstdWindow = 4 * pageBytes

func newZstdCodec() *zstdCodec {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true),
		zstd.WithAllLitEntropyCompression(true)) // else bytes that are few and do not repeat, the upper ones of logprobs, stay as they are
	d, derr := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err = errors.Join(err, derr); err != nil {
		panic("storage: " + err.Error()) // only wrong options fail
	}
	return &zstdCodec{e, d}
}

func (c *zstdCodec) String() string { return "ZSTD" }

func (c *zstdCodec) CompressionCodec() format.CompressionCodec { return format.Zstd }

func (c *zstdCodec) Encode(dst, src []byte) ([]byte, error) {
	if most := c.encoder.MaxEncodedSize(len(src)); cap(dst) < most && len(src) > pageBytes {
		dst = make([]byte, 0, most)
	}
	return c.encoder.EncodeAll(src, dst[:0]), nil
}

// Decode is called for the columns with bloom filters: the writer reads their pages again when a row group ends.
func (c *zstdCodec) Decode(dst, src []byte) ([]byte, error) { return c.decoder.DecodeAll(src, dst[:0]) }
