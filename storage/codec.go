package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"tranche/episode"
)

// A row's payload in the journal is
//
//	seq     uint64           order of writing in the run; the highest of one key counts
//	key     16 bytes         of the episode, so that an index need not decode the row
//	text    uint32 length, then rowMark and all columns but the four of tokens, by their names (fieldlist.go)
//	tokens  their ids, mask, versions and logprobs (tokencodec.go)
//
// Columns go by name, because a run may be resumed by a program that has more of them. What earlier programs wrote is in formercodec.go. All
// little endian.
const (
	payloadHead = 8 + 16
	rowMark     = "\x02row" // no JSON begins so
	leastTokens = 4         // bytes: four empty lists
)

// rowColumns are the columns of a row's text.
var rowColumns = fieldListOf(reflect.TypeFor[Row](), "token_ids", "loss_mask", "logprobs", "versions")

func appendRow(dst []byte, seq uint64, k key, r *Row) ([]byte, error) {
	logprobs := make([]episode.Logprob, len(r.Logprobs))
	for i, lp := range r.Logprobs {
		if lp != nil {
			logprobs[i] = episode.Logprob{Value: *lp, Known: true}
		}
	}
	return appendRowWith(dst, seq, k, r, logprobs)
}

// appendRowWith encodes a row with the logprobs that are given instead of its own.
func appendRowWith(dst []byte, seq uint64, k key, r *Row, logprobs []episode.Logprob) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	dst = append(dst, k[:]...)
	at := len(dst)
	dst = appendText(append(dst, 0, 0, 0, 0), r)
	n := len(dst) - at - 4
	if n > maxPayload {
		return nil, fmt.Errorf("encode episode %s: %d bytes of text: the most a journal record holds is %d", r.EpisodeID, n, maxPayload)
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(n))
	dst = appendIDs(dst, r.TokenIDs)
	dst = appendRuns(dst, r.LossMask)
	dst = appendRuns(dst, r.Versions)
	return appendLogprobs(dst, logprobs), nil
}

func appendText(dst []byte, r *Row) []byte {
	return rowColumns.put(append(dst, rowMark...), reflect.ValueOf(r).Elem())
}

// payloadKey reads who a payload is about without decoding it.
func payloadKey(payload []byte) (seq uint64, k key, err error) {
	if len(payload) < payloadHead {
		return 0, k, fmt.Errorf("a row record of %d bytes is too short", len(payload))
	}
	copy(k[:], payload[8:])
	return binary.LittleEndian.Uint64(payload), k, nil
}

func decodeRow(payload []byte) (*Row, error) { return decodeRowInto(payload, new(tokenLists)) }

// decodeRowInto has the row's columns of tokens in the lists that are given, as far as they have room.
func decodeRowInto(payload []byte, lists *tokenLists) (*Row, error) {
	rest, err := cut(payload, payloadHead)
	if err != nil {
		return nil, err
	}
	text, rest, err := cutText(rest)
	if err != nil {
		return nil, err
	}
	r := new(Row)
	fields, current := bytes.CutPrefix(text, []byte(rowMark))
	if !current {
		err = decodeFormer(text, rest, r)
	} else if err = rowColumns.take(fields, reflect.ValueOf(r).Elem()); err == nil {
		err = decodeTokens(rest, r, lists)
	}
	if err != nil {
		return nil, fmt.Errorf("decode the journal row of episode %q: %w", r.EpisodeID, err)
	}
	return r, nil
}

// plausibleRow says whether a payload of that many bytes may begin so: with a text that leaves room for the tokens.
func plausibleRow(head []byte, length int64) bool {
	text, err := cut(head, payloadHead+4)
	if err != nil || len(text) == 0 {
		return false
	}
	left := length - payloadHead - 4 - int64(binary.LittleEndian.Uint32(head[payloadHead:]))
	if text[0] == '{' {
		return left >= 4 && (left-4)%formerBytesPerToken == 0
	}
	return bytes.HasPrefix(text, []byte(rowMark)) && left >= leastTokens
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

// errCut says that a list or a field is longer than what is there of it.
var errCut = errors.New("it ends too early")
