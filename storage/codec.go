package storage

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
)

// A row's payload in the journal is
//
//	seq    uint64           order of writing in the run; the highest of one key counts
//	key    16 bytes         of the episode, so that an index needs no JSON
//	text   uint32 length, then the row as JSON without its four token columns
//	n      uint32           number of token ids; then their ids, mask, logprobs and versions as raw numbers
//
// JSON, because a run may be resumed by a newer version that has more columns; raw numbers for the tokens, because they are
// most of a long row and JSON has no NaN. All little endian; a logprob is a presence byte and a float32.
const (
	payloadHead   = 8 + 16
	bytesPerToken = 4 + 1 + 5 + 4
)

func appendRow(dst []byte, seq uint64, k key, r *Row) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	dst = append(dst, k[:]...)
	at := len(dst)
	dst, err := appendText(append(dst, 0, 0, 0, 0), r)
	if err != nil {
		return nil, fmt.Errorf("encode episode %s: %w", r.EpisodeID, err)
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return appendTokens(dst, r), nil
}

func appendText(dst []byte, r *Row) ([]byte, error) {
	light := *r
	light.TokenIDs, light.LossMask, light.Logprobs, light.Versions = nil, nil, nil, nil
	buf := bytes.NewBuffer(dst)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(&light)
	return buf.Bytes(), err
}

func appendTokens(dst []byte, r *Row) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.TokenIDs)))
	for _, id := range r.TokenIDs {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	}
	for _, m := range r.LossMask {
		dst = append(dst, byte(m))
	}
	for _, lp := range r.Logprobs {
		if lp == nil {
			dst = append(dst, 0, 0, 0, 0, 0)
			continue
		}
		dst = binary.LittleEndian.AppendUint32(append(dst, 1), math.Float32bits(*lp))
	}
	for _, v := range r.Versions {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	return dst
}

// payloadKey reads who a payload is about without decoding it.
func payloadKey(payload []byte) (seq uint64, k key, err error) {
	if len(payload) < payloadHead {
		return 0, k, fmt.Errorf("a row record of %d bytes is too short", len(payload))
	}
	copy(k[:], payload[8:])
	return binary.LittleEndian.Uint64(payload), k, nil
}

func decodeRow(payload []byte) (*Row, error) {
	rest, err := cut(payload, payloadHead)
	if err != nil {
		return nil, err
	}
	text, rest, err := cutText(rest)
	if err != nil {
		return nil, err
	}
	r := new(Row)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("decode a journal row: %w", err)
	}
	if err := decodeTokens(rest, r); err != nil {
		return nil, fmt.Errorf("episode %s: %w", r.EpisodeID, err)
	}
	return r, nil
}

func cut(b []byte, n int) ([]byte, error) {
	if len(b) < n {
		return nil, fmt.Errorf("a journal row ends after %d of %d bytes", len(b), n)
	}
	return b[n:], nil
}

func cutText(b []byte) (text, rest []byte, err error) {
	body, err := cut(b, 4)
	if err != nil {
		return nil, nil, err
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > int64(len(body)) {
		return nil, nil, fmt.Errorf("a journal row says %d bytes of text and has %d", n, len(body))
	}
	return body[:n], body[n:], nil
}

func decodeTokens(b []byte, r *Row) error {
	body, err := cut(b, 4)
	if err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n*bytesPerToken != int64(len(body)) {
		return fmt.Errorf("a journal row says %d tokens and has %d bytes for them", n, len(body))
	}
	r.TokenIDs, r.LossMask = make([]int32, n), make([]int8, n)
	r.Logprobs, r.Versions = make([]*float32, n), make([]int32, n)
	values := make([]float32, n)
	ids, mask := body[:4*n], body[4*n:5*n]
	logprobs, versions := body[5*n:10*n], body[10*n:]
	for i := range r.TokenIDs {
		r.TokenIDs[i] = int32(binary.LittleEndian.Uint32(ids[4*i:]))
		r.LossMask[i] = int8(mask[i])
		r.Versions[i] = int32(binary.LittleEndian.Uint32(versions[4*i:]))
		if logprobs[5*i] != 0 {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(logprobs[5*i+1:]))
			r.Logprobs[i] = &values[i]
		}
	}
	return nil
}
