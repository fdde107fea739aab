package inference

import (
	"encoding/json"
	"strings"

	"tranche/episode"
)

// content is the content of a message: a text, or a list of typed parts, as Mistral's reasoning models write it.
type content struct {
	said             text
	thought, refused *text // nil = no such part
}

// UnmarshalJSON reads a text, or a list of parts. A list with a part of unknown kind is kept as its own JSON text.
func (c *content) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		if parts, ok := readParts(data); ok {
			*c = parts
			return nil
		}
	}
	return c.said.UnmarshalJSON(data)
}

func readParts(data []byte) (c content, ok bool) {
	var parts []struct {
		Text     *text    `json:"text"`
		Thinking *content `json:"thinking"`
		Refusal  *text    `json:"refusal"`
	}
	if json.Unmarshal(data, &parts) != nil {
		return c, false
	}
	for _, p := range parts {
		switch {
		case p.Text != nil:
			c.said = append(c.said, *p.Text...)
		case p.Thinking != nil:
			c.thought = joined(c.thought, p.Thinking.said)
		case p.Refusal != nil:
			c.refused = joined(c.refused, *p.Refusal)
		default:
			return content{}, false
		}
	}
	return c, true
}

func joined(t *text, more text) *text {
	if t != nil {
		more = append(*t, more...)
	}
	return &more
}

// Tags of thinking inside a content.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// untagged is a content taken apart.
type untagged struct {
	episode.Tagged
	thought string
	said    *string // nil = the answer ended before it said anything
}

// untag takes the thinking out of a content that begins with <think>, or that begins inside it because the chat template wrote
// the tag. Every byte of the content is in the parts: see episode.Message.Sendable, which puts them together again.
func untag(s string) (untagged, bool) {
	var u untagged
	begin := len(s) - len(strings.TrimLeft(s, " \t\r\n"))
	if strings.HasPrefix(s[begin:], thinkOpen) {
		begin += len(thinkOpen)
		u.Open = s[:begin]
	} else {
		begin = 0
	}
	end := strings.Index(s[begin:], thinkClose)
	switch {
	case end >= 0 && (u.Open != "" || !strings.Contains(s[:end], thinkOpen)):
		u.thought, u.Closed = s[begin:begin+end], true
		u.said = episode.Ptr(s[begin+end+len(thinkClose):])
		return u, true
	case u.Open != "":
		u.thought = s[begin:]
		return u, true
	}
	return untagged{}, false
}

// into puts the parts into a message that had them in its content.
func (u untagged) into(m *episode.Message) {
	m.Tagged, m.ReasoningContent, m.Content = &u.Tagged, &u.thought, u.said
}
