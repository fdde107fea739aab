package inference

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tranche/episode"
)

// pass makes one attempt of a call that goes out as it is. The reply holds the answer as it came and the usage it states; nothing
// else of it is read.
func (e *Endpoint) pass(ctx context.Context, c *episode.Call, attempt int) (*episode.Reply, error) {
	body := c.Request.Body
	if c.Request.OwnModel {
		var err error
		if body, err = withModel(body, e.facts.model); err != nil {
			return nil, e.fault(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: fmt.Errorf("the request was not sent: %w", err)})
		}
	}
	id := requestID(c, attempt, 0)
	a, service, f := e.attempt(ctx, sending{id: id, session: c.Episode, route: c.Request.Route, body: body, whole: true}, e.cfg.limits(c.PromptTokens, c.Want))
	if f != nil {
		return nil, e.fault(refused(f, id))
	}
	if a.whole.ID == "" {
		a.whole.ID = id
	}
	return &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant}, Answer: a.whole, Usage: a.usage, Endpoint: e.cfg.Name, Service: service}, nil
}

// refused is the fault of a request that goes out as it is. A prompt over the limit is a refusal like others: there is no token
// limit of ours to lower. A model or route that is not there is its own fault: it may name them itself.
func refused(f *failure, id string) *episode.Fault {
	out := classify(*f, time.Now())
	if out.Class == episode.ClassOverflow {
		out.Class, out.Limit, out.Prompt = episode.ClassBadRequest, 0, 0
	}
	out.Refused = out.Refused && out.Class != episode.ClassNotFound
	if f.err == nil && f.body != nil {
		out.Answer = &episode.Answer{Status: f.status, ID: id, Body: f.body}
		if own := f.header.Get("X-Request-Id"); own != "" {
			out.Answer.ID = own
		}
	}
	return out
}

// takeBody takes a whole answer. An error object inside it is returned as said.
func (a *answer) takeBody(raw []byte, h http.Header) (said []byte, err error) {
	if !a.wantWhole {
		return a.takeEvent(raw)
	}
	var o struct {
		Error json.RawMessage  `json:"error"`
		Usage aside[wireUsage] `json:"usage"`
	}
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] != '{' {
		return nil, errors.New("expected one JSON object")
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	if isError(o.Error) {
		return raw, nil
	}
	a.takeUsage(o.Usage.of)
	a.whole = &episode.Answer{Status: http.StatusOK, ID: h.Get("X-Request-Id"), Body: raw}
	return nil, nil
}

// withModel puts a model's name into a JSON object: in the place of every field "model" at its top, else as its first field. Every
// other byte stays.
func withModel(body []byte, model string) ([]byte, error) {
	name, err := json.Marshal(model)
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", model, err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("the body is no JSON object")
	}
	top := d.InputOffset()
	var out []byte
	at, fields := int64(0), 0
	for ; d.More(); fields++ {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("read the body: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("read the body: %w", err)
		}
		if end := d.InputOffset(); key == "model" {
			out = append(append(out, body[at:end-int64(len(value))]...), name...)
			at = end
		}
	}
	if at > 0 {
		return append(out, body[at:]...), nil
	}
	out = append(append(append(out, body[:top]...), `"model":`...), name...)
	if fields > 0 {
		out = append(out, ',')
	}
	return append(out, body[top:]...), nil
}
