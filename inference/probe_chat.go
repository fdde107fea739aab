package inference

import (
	"fmt"
	"slices"
	"strings"

	"tranche/episode"
)

// chat is a form of the probe's chat request.
type chat struct {
	own     bool // with engines' own fields and one that nobody knows; else only what OpenAI's interface has
	samples int  // n; with more than one at temperature 1, for some engines refuse greedy samples of one prompt
}

func (p *prober) chatCall(form chat) asking {
	text := "Count: one two three"
	fields := map[string]any{
		"model": p.caps.Model.Value, "messages": []episode.Message{{Role: episode.RoleUser, Content: &text}}, p.limitField(): 2, "logprobs": true, "top_logprobs": 1,
	}
	if form.samples > 1 {
		fields["n"], fields["temperature"] = form.samples, 1
	}
	if form.own {
		for _, f := range p.ownFields() {
			fields[f] = true
		}
	}
	return p.post("/v1/chat/completions", fields, func(s said) { p.readChat(s, form) })
}

// limitField is the name that max_tokens has here.
func (p *prober) limitField() string {
	if p.kind() == KindOpenAI || p.e.dialect.Load().maxCompletionTokens {
		return fieldMaxCompletionTokens
	}
	return fieldMaxTokens
}

// ownFields are what the chat request tries beyond OpenAI's interface.
func (p *prober) ownFields() []string {
	switch p.kind() {
	case KindOpenAI:
		return nil
	case KindSGLang:
		return []string{strangeField, "return_prompt_token_ids", "return_meta_info"}
	}
	return []string{strangeField, "return_token_ids"}
}

// strangeField is a field that no server knows.
const strangeField = "tranche_probe"

func (p *prober) readChat(s said, form chat) {
	c := &p.caps
	w, ok := p.answer(s)
	if !ok {
		p.readChatRefusal(s, form)
		return
	}
	own := form.own && len(p.ownFields()) > 0
	switch {
	case own:
		c.UnknownFields.prove(Ignores, s.label+": answered with an unknown field in the request")
	case p.again != nil && !c.UnknownFields.Sure() && p.kind() != KindOpenAI:
		c.UnknownFields.claim(Refuses, s.label+": refused with n and the engines' own fields, answered without")
	}
	p.samples = len(w.Choices)
	if form.samples > 1 {
		c.N.prove(p.samples == form.samples, fmt.Sprintf("%s: n = %d gave %d choices", s.label, form.samples, p.samples))
	}
	first := choice{}
	first.take(&w.Choices[0])
	spoke := len(first.content)+len(first.reasoning) > 0
	p.give(&c.Logprobs, len(first.logprobs) > 0 && first.logprobs[0].Known, spoke, s.label+": logprobs")
	switch {
	case own:
		p.readChatIDs(w, &first, spoke, s.label)
	case c.UnknownFields.Sure():
		c.ChatTokenIDs.prove(false, s.label+": refuses the fields that ask for them")
		c.ChatPromptIDs.prove(false, s.label+": refuses the fields that ask for them")
	}
	p.give(&c.WeightVersion, w.Metadata.of != nil && len(w.Metadata.of.WeightVersion) > 0, true, s.label+": metadata.weight_version")
}

func (p *prober) readChatIDs(w *wireAnswer, first *choice, spoke bool, label string) {
	ids, where := first.ids, "token_ids"
	switch {
	case ids != nil && w.Choices[0].MetaInfo != nil:
		where = "meta_info.output_token_logprobs"
	case ids == nil && first.logprobIDs != nil:
		ids, where = first.logprobIDs, "ids beside the logprobs"
	}
	p.give(&p.caps.ChatTokenIDs, len(ids) > 0, spoke, label+": "+where)
	p.give(&p.caps.ChatPromptIDs, len(w.PromptTokenIDs)+len(w.Choices[0].PromptTokenIDs) > 0, true, label+": prompt_token_ids")
}

// readChatRefusal learns from a refusal what was refused. The request is sent once more without it.
func (p *prober) readChatRefusal(s said, form chat) {
	c := &p.caps
	why := s.label + ": " + s.why()
	if !s.refused() || p.again != nil {
		p.lacks(s, &c.Logprobs, &c.N, &c.ChatTokenIDs, &c.ChatPromptIDs, &c.WeightVersion, &c.UnknownFields)
		return
	}
	body := strings.ToLower(string(s.body))
	named := func(field string) bool { return strings.Contains(body, field) }
	switch said := readRefusal(s.body); {
	case slices.ContainsFunc(p.ownFields(), named):
		c.UnknownFields.prove(Refuses, why)
		p.again = &chat{samples: form.samples}
	case said.Param != nil && *said.Param == "n":
		c.N.prove(false, why)
		p.again = &chat{own: true, samples: 1}
	default:
		p.again = &chat{samples: 1}
	}
}

// give notes what an answer holds. That it does not hold it counts only where it could have.
func (p *prober) give(f *Fact[bool], has, could bool, from string) {
	switch {
	case has:
		f.prove(true, from)
	case could:
		f.prove(false, from+" is not in the answer")
	default:
		f.wonder(from + " is not in the answer, which is empty")
	}
}

// answer decodes a completion of either kind and notes what it tells of usage.
func (p *prober) answer(s said) (*wireAnswer, bool) {
	var w wireAnswer
	if !s.ok() || decode(s.body, &w) != nil || len(w.Choices) == 0 || isError(w.Error) {
		return nil, false
	}
	u := usageOf(&w)
	p.usages[0] = p.usages[0] || u.Prompt != nil && u.Completion != nil
	p.usages[1] = p.usages[1] || u.Cached != nil
	if p.usages[0] {
		p.caps.Usage.prove(true, s.label+": usage")
	}
	if u.Cached != nil {
		p.caps.CachedTokens.prove(true, s.label+": usage")
	}
	return &w, true
}

func usageOf(w *wireAnswer) episode.Usage {
	var a answer
	a.take(w)
	return a.usage
}

// concludeUsage says that no answer held the counts.
func (p *prober) concludeUsage() {
	c := &p.caps
	if p.samples == 0 && !p.prompted {
		return
	}
	if !p.usages[0] {
		c.Usage.prove(false, "no answer held any")
	}
	if !p.usages[1] {
		c.CachedTokens.prove(false, "no answer held any")
	}
}
