package storage

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
)

// The text of a row was JSON once, and its tokens were
//
//	n      uint32           number of token ids; then their ids, mask, logprobs and versions as raw numbers
//
// where a logprob is a presence byte and a float32. A run that such a program began is gone on with: its journal is read, and not written so any more.
const formerBytesPerToken = 4 + 1 + 5 + 4

func decodeFormer(text, tokens []byte, r *Row) error {
	if err := json.Unmarshal(text, r); err != nil {
		return err
	}
	return decodeFormerTokens(tokens, r)
}

func decodeFormerTokens(b []byte, r *Row) error {
	body, err := cut(b, 4)
	if err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n*formerBytesPerToken != int64(len(body)) {
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
