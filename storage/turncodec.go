package storage

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"tranche/episode"
)

// A turn's payload is
//
//	seq      uint64           order of writing in the run; of two records of one turn the later counts
//	prev     uint64           seq of the turn before, 0 for the first: what does not follow it is another story
//	key      16 bytes         of the episode
//	attempt  uint32           of the episode
//	turn     uint32           from 0
//	ends     byte             1 = it is no turn: tools hold something of the episode from here on
//	text     uint32 length, then a turnText as JSON
//	prompt   ids that the turn added to the prompt
//	sampled  ids
//	logprobs presence byte and float32 each
//	raw      the answer as it came, deflated
//
// Each of the last four begins with a uint32: 0 = there is none, else its length and one more. All little endian.
//
// JSON has the field names of package episode, so that a field that is new there is kept here; TestTurnTextIsPinned holds the names that records of earlier
// versions have.
const (
	turnHead    = 8 + 8 + 16 + 4 + 4 + 1
	turnVersion = 1 // of turnText; records of another are not gone on from
)

// errInexact says that a turn holds text which JSON cannot: bytes that are no UTF-8.
var errInexact = errors.New("it holds bytes that are no UTF-8")

// turnHeader is what an index needs of a turn record.
type turnHeader struct {
	seq, prev uint64
	key       key
	attempt   uint32
	turn      uint32
	ends      bool
}

// turnText is all of a turn but its ids and the raw answer. Episode, Created and Opening come with the first turn, and with the record that ends a chain.
type turnText struct {
	Version int           `json:"v"`
	Episode string        `json:"episode,omitempty"`
	Task    string        `json:"task,omitempty"`
	Created int64         `json:"created,omitempty"` // nanoseconds since 1970
	Opening string        `json:"opening,omitempty"`
	Kept    []string      `json:"kept,omitempty"` // no turn: from here on these tools hold something of the episode
	Spent   time.Duration `json:"spent,omitempty"`
	Same    int           `json:"same,omitempty"`
	Reply   *turnReply    `json:"reply,omitempty"`
	Turn    *episode.Turn `json:"turn,omitempty"`
	Seen    []turnSeen    `json:"seen,omitempty"`
}

// turnReply is a Reply whose message has all that it has; its lists of ids and its raw body are elsewhere.
type turnReply struct {
	episode.Reply
	Message turnMessage
}

// turnSeen is an Observation, likewise.
type turnSeen struct {
	episode.Observation
	Told *turnMessage
}

// turnMessage is a Message with what never goes out with it.
type turnMessage struct {
	Role             string
	Content          *string
	ReasoningContent *string
	Name             *string
	ToolCallID       *string
	ToolCalls        []episode.ToolCall
	Tagged           *episode.Tagged
	Written          *episode.Written
}

func (m turnMessage) message() episode.Message { return episode.Message(m) }

// appendTurn encodes the last turn of an episode, or, where tools hold something of it by now, that its chain ends.
func appendTurn(dst []byte, h turnHeader, e *episode.Episode, s *episode.Step) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, h.seq), h.prev)
	dst = append(dst, h.key[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, h.attempt)
	dst = append(binary.LittleEndian.AppendUint32(dst, h.turn), presence(h.ends))
	at := len(dst)
	dst, err := appendTurnText(append(dst, 0, 0, 0, 0), textOf(h, e, s))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	var r episode.Reply
	var raw []byte
	if !h.ends {
		if r = *s.Reply; r.Raw != nil {
			raw = r.Raw.Deflated
		}
	}
	dst = appendList(dst, r.PromptIDs, appendID)
	dst = appendList(dst, r.SampledIDs, appendID)
	dst = appendList(dst, r.Logprobs, appendLogprob)
	return appendList(dst, raw, func(b []byte, v byte) []byte { return append(b, v) }), nil
}

// plausibleTurn says whether a payload of that many bytes may begin so: with JSON that leaves room for four lists.
func plausibleTurn(head []byte, length int64) bool {
	if len(head) <= turnHead+4 || head[turnHead+4] != '{' {
		return false
	}
	return length-turnHead-4-int64(binary.LittleEndian.Uint32(head[turnHead:])) >= 4*4
}

func textOf(h turnHeader, e *episode.Episode, s *episode.Step) *turnText {
	t := &turnText{Version: turnVersion, Kept: s.Kept, Spent: s.Spent}
	if h.turn == 0 || h.ends {
		t.Episode, t.Task, t.Created, t.Opening = e.ID, e.Task.ID, e.Created.UnixNano(), e.Opening()
	}
	if h.ends {
		return t
	}
	r := turnReply{Reply: *s.Reply, Message: turnMessage(s.Reply.Message)}
	r.PromptIDs, r.SampledIDs, r.Logprobs = nil, nil, nil
	if r.Raw != nil {
		bare := *r.Raw
		bare.Deflated = nil
		r.Raw = &bare
	}
	t.Same, t.Reply, t.Turn = s.Same, &r, &s.Turn
	for _, o := range s.Seen {
		seen := turnSeen{Observation: o}
		if o.Told != nil {
			told := turnMessage(*o.Told)
			seen.Told = &told
		}
		t.Seen = append(t.Seen, seen)
	}
	return t
}

// appendTurnText refuses text that would not come back as it is: encoding/json writes U+FFFD as an escape where it stands for bytes that are no UTF-8, and only there.
func appendTurnText(dst []byte, t *turnText) ([]byte, error) {
	from := len(dst)
	buf := bytes.NewBuffer(dst)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(t); err != nil {
		return nil, err
	}
	dst = buf.Bytes()
	if escapes(dst[from:], `\ufffd`) {
		return nil, errInexact
	}
	return dst, nil
}

// escapes says whether JSON has an escape, and not the same letters behind a backslash that is escaped itself.
func escapes(text []byte, escape string) bool {
	for {
		at := bytes.Index(text, []byte(escape))
		if at < 0 {
			return false
		}
		if before := len(bytes.TrimRight(text[:at], `\`)); (at-before)%2 == 0 {
			return true
		}
		text = text[at+len(escape):]
	}
}

func appendList[T any](dst []byte, list []T, one func([]byte, T) []byte) []byte {
	if list == nil {
		return append(dst, 0, 0, 0, 0)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(list))+1)
	for _, v := range list {
		dst = one(dst, v)
	}
	return dst
}

func appendID(dst []byte, id int32) []byte {
	return binary.LittleEndian.AppendUint32(dst, uint32(id))
}

func appendLogprob(dst []byte, lp episode.Logprob) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, presence(lp.Known)), math.Float32bits(lp.Value))
}

func presence(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// readTurnHeader reads what an index needs.
func readTurnHeader(payload []byte) (h turnHeader, err error) {
	if len(payload) < turnHead {
		return h, fmt.Errorf("a turn record of %d bytes is too short", len(payload))
	}
	h.seq, h.prev = binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint64(payload[8:])
	copy(h.key[:], payload[16:])
	h.attempt, h.turn, h.ends = binary.LittleEndian.Uint32(payload[32:]), binary.LittleEndian.Uint32(payload[36:]), payload[40] != 0
	return h, nil
}

// readTurnText decodes the text of a record and returns what stands behind it.
func readTurnText(payload []byte) (*turnText, []byte, error) {
	body, err := cut(payload, turnHead)
	if err != nil {
		return nil, nil, err
	}
	text, rest, err := cutText(body)
	if err != nil {
		return nil, nil, err
	}
	t := new(turnText)
	if err := json.Unmarshal(text, t); err != nil {
		return nil, nil, fmt.Errorf("decode a turn record: %w", err)
	}
	if t.Version != turnVersion {
		return nil, nil, fmt.Errorf("a turn record of version %d: this program goes on from version %d", t.Version, turnVersion)
	}
	return t, rest, nil
}

// decodeStep makes the step of a record that holds a turn.
func decodeStep(payload []byte) (*turnText, episode.Step, error) {
	var s episode.Step
	t, rest, err := readTurnText(payload)
	if err == nil && (t.Reply == nil || t.Turn == nil) {
		err = errors.New("a turn record without its turn")
	}
	if err != nil {
		return nil, s, err
	}
	r := t.Reply.Reply
	r.Message = t.Reply.Message.message()
	var raw []byte
	for _, part := range []func() error{
		func() (err error) { r.PromptIDs, rest, err = cutList(rest, 4, readID); return err },
		func() (err error) { r.SampledIDs, rest, err = cutList(rest, 4, readID); return err },
		func() (err error) { r.Logprobs, rest, err = cutList(rest, 5, readLogprob); return err },
		func() (err error) { raw, rest, err = cutList(rest, 1, func(b []byte) byte { return b[0] }); return err },
	} {
		if err := part(); err != nil {
			return nil, s, err
		}
	}
	if len(rest) > 0 {
		return nil, s, fmt.Errorf("%d bytes stand behind a turn record", len(rest))
	}
	if r.Raw != nil {
		r.Raw.Deflated = raw
	}
	s = episode.Step{Reply: &r, Same: t.Same, Turn: *t.Turn, Spent: t.Spent}
	for _, seen := range t.Seen {
		o := seen.Observation
		if seen.Told != nil {
			told := seen.Told.message()
			o.Told = &told
		}
		s.Seen = append(s.Seen, o)
	}
	return t, s, nil
}

func cutList[T any](b []byte, size int, one func([]byte) T) ([]T, []byte, error) {
	body, err := cut(b, 4)
	if err != nil {
		return nil, nil, err
	}
	n := int64(binary.LittleEndian.Uint32(b)) - 1
	if n < 0 {
		return nil, body, nil
	}
	if n*int64(size) > int64(len(body)) {
		return nil, nil, fmt.Errorf("a turn record says %d entries and has %d bytes for them", n, len(body))
	}
	list := make([]T, n)
	for i := range list {
		list[i] = one(body[i*size:])
	}
	return list, body[int(n)*size:], nil
}

func readID(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) }

func readLogprob(b []byte) episode.Logprob {
	return episode.Logprob{Known: b[0] != 0, Value: math.Float32frombits(binary.LittleEndian.Uint32(b[1:]))}
}
