package episode

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
)

// MaxRawBytes is the most that the raw answers of one episode hold together, bytes before deflating. What comes later is counted
// and not held.
const MaxRawBytes = 16 << 20

// Raw is an answer as a server sent it: the body of the last attempt of a call. It is held deflated: an episode may be open for
// hours, and answers with ids and logprobs are mostly repetition.
type Raw struct {
	Turn     int16 // which call of the episode; set when the episode takes it
	Status   int16 // HTTP status
	Class    Class // of the fault that the answer was; "" = it became the turn's reply
	Bytes    int64 // of the body, as far as it came
	Held     int64 // of them that are held; fewer where a cap cut the body
	Deflated []byte
}

// Body is what is held of the body; nil when nothing is.
func (r Raw) Body() ([]byte, error) {
	if r.Held == 0 {
		return nil, nil
	}
	body, err := io.ReadAll(flate.NewReader(bytes.NewReader(r.Deflated)))
	if err != nil {
		return nil, fmt.Errorf("inflate a raw answer: %w", err)
	}
	return body, nil
}

// keepRaw takes the raw answer of a turn, if there is one.
func (e *Episode) keepRaw(r *Raw, turn int) {
	if r == nil {
		return
	}
	kept := *r
	kept.Turn = int16(turn)
	held := kept.Held
	for _, o := range e.Raw {
		held += o.Held
	}
	if held > MaxRawBytes {
		kept.Held, kept.Deflated = 0, nil
	}
	e.Raw = append(e.Raw, kept)
}
