package export

import (
	"bytes"
	"encoding/json"

	"tranche/storage"
)

// toolsOf is what the model was told it may call, as a JSON value: a list, its text, or null for none; nil where tools are not wanted. why is the
// reason to leave the row out: what it was told is not known.
func (c *Config) toolsOf(r *storage.Row) (tools json.RawMessage, why string) {
	if c.Tools == AsNone || c.Tools == "" {
		return nil, ""
	}
	defs, err := c.Offer(r)
	if err != nil {
		return nil, leftTools
	}
	if trimmed := bytes.TrimSpace(defs); len(trimmed) == 0 || string(trimmed) == "null" {
		return json.RawMessage("null"), ""
	}
	if c.Tools == AsText {
		text, err := encode(string(defs))
		if err != nil {
			return nil, leftTools
		}
		return text, ""
	}
	return defs, ""
}
