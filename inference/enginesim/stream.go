package enginesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// stream writes a call's answer as server-sent events, one for each token as it comes, whatever the client's pace: begin once the first
// token of a choice came, token for each. The order of events within a choice depends on the answer alone.
type stream struct {
	engine *Engine
	call   *call
	w      http.ResponseWriter
	begin  func(choice int) any               // nil = no opening event
	token  func(choice, i int, last bool) any // nil result = nothing to tell about this token
	abort  func(choice int) any               // the finish of a choice that was cut
	end    func(sampled []int) any            // nil result = no closing event
	patch  func(event any, sampled []int)     // last touch on each event; nil = none
}

func (s *stream) run(r *http.Request) error {
	s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s.w.Header().Set("Cache-Control", "no-cache")
	s.w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(s.w).Flush
	if err := flush(); err != nil {
		return fmt.Errorf("enginesim: stream: %w", err)
	}
	told := make([]int, len(s.call.flows))
	come := make([]int, len(s.call.flows))
	for all := false; !all; {
		select {
		case <-s.call.news:
		case <-r.Context().Done():
			return fmt.Errorf("enginesim: stream abandoned: %w", r.Context().Err())
		}
		all = s.engine.progress(s.call, come)
		for choice := range come {
			if err := s.tell(choice, told, come[choice]); err != nil {
				return err
			}
		}
		if err := flush(); err != nil {
			return fmt.Errorf("enginesim: stream: %w", err)
		}
	}
	for _, choice := range s.engine.cutChoices(s.call) {
		if err := s.patched(s.abort(choice), told); err != nil {
			return err
		}
	}
	if end := s.end(told); end != nil {
		if err := s.event(end); err != nil {
			return err
		}
	}
	if _, err := s.w.Write([]byte("data: [DONE]\n\n")); err != nil {
		return fmt.Errorf("enginesim: stream: %w", err)
	}
	return nil
}

// tell writes the events of one choice's new tokens.
func (s *stream) tell(choice int, told []int, to int) error {
	for told[choice] < to {
		i := told[choice]
		if i == 0 && s.begin != nil {
			if err := s.patched(s.begin(choice), told); err != nil {
				return err
			}
		}
		told[choice]++
		event := s.token(choice, i, i == len(s.call.flows[choice].answer.ids)-1)
		if event == nil {
			continue
		}
		if err := s.patched(event, told); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) patched(event any, told []int) error {
	if s.patch != nil {
		s.patch(event, told)
	}
	return s.event(event)
}

func (s *stream) event(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("enginesim: event does not encode: %v", err)) // own types only: a bug here
	}
	line := make([]byte, 0, len(b)+8)
	line = append(append(append(line, "data: "...), b...), "\n\n"...)
	if _, err := s.w.Write(line); err != nil {
		return fmt.Errorf("enginesim: stream: %w", err)
	}
	return nil
}

// piece is the text that token i uncovers.
func (a *answer) piece(i int) string {
	from := 0
	if i > 0 {
		from = a.shown[i-1]
	}
	return a.text[from:a.shown[i]]
}

func (t *Tokenizer) display(id int32) (text string, raw []int) {
	p := t.pieces[id]
	raw = make([]int, len(p))
	for i := range len(p) {
		raw[i] = int(p[i])
	}
	return strings.ToValidUTF8(p, string(utf8.RuneError)), raw
}

// chatLogprobs describes tokens [from, to) in the chat shape.
func (a *answer) chatLogprobs(from, to, top int) *chatLogprobs {
	out := &chatLogprobs{Content: make([]chatLogprob, 0, to-from)}
	for i := from; i < to; i++ {
		own, others := a.logprob(i, top)
		text, raw := a.tokens.display(a.ids[i])
		entry := chatLogprob{Token: text, Logprob: own, Bytes: raw, Top: []topLogprob{}}
		for _, o := range others {
			text, raw := a.tokens.display(o.id)
			entry.Top = append(entry.Top, topLogprob{Token: text, Logprob: o.logprob, Bytes: raw})
		}
		out.Content = append(out.Content, entry)
	}
	return out
}

// completionLogprobs describes tokens [from, to) in the completions shape; offsets count characters of the answer's text.
func (a *answer) completionLogprobs(from, to, top int) *completionLogprobs {
	n := to - from
	out := &completionLogprobs{Offsets: make([]int, 0, n), Logprobs: make([]float64, 0, n), Tokens: make([]string, 0, n), Top: make([]map[string]float64, 0, n)}
	offset, at := 0, 0
	if from > 0 {
		at = a.shown[from-1]
		offset = utf8.RuneCountInString(a.text[:at])
	}
	for i := from; i < to; i++ {
		own, others := a.logprob(i, max(top, 1)) // 0 asks for the sampled token alone
		text, _ := a.tokens.display(a.ids[i])
		dict := make(map[string]float64, len(others))
		for _, o := range others {
			other, _ := a.tokens.display(o.id)
			dict[other] = o.logprob
		}
		out.Offsets, out.Logprobs = append(out.Offsets, offset), append(out.Logprobs, own)
		out.Tokens, out.Top = append(out.Tokens, text), append(out.Top, dict)
		offset += utf8.RuneCountInString(a.text[at:a.shown[i]])
		at = a.shown[i]
	}
	return out
}
