package inference

// What the scanner reads of an answer: the wire forms of wire.go, field by field. A field that is added there is added here, or read by encoding/json.

func (s *scan) answer(w *wireAnswer) bool {
	var seen uint32
	return s.members(func(key []byte) bool {
		switch string(key) {
		case "model":
			return once(&seen, 0) && s.word(&w.Model)
		case "choices":
			return once(&seen, 1) && s.choices(&w.Choices)
		case "usage":
			return once(&seen, 2) && s.usage(&w.Usage)
		case "prompt_token_ids":
			return once(&seen, 3) && s.int32s(&w.PromptTokenIDs)
		case "error":
			return once(&seen, 4) && s.raw(&w.Error)
		case "timings":
			return once(&seen, 5) && s.slowly(&w.Timings)
		case "metadata":
			return once(&seen, 6) && s.slowly(&w.Metadata)
		case "x_groq":
			return once(&seen, 7) && s.slowly(&w.XGroq)
		default:
			return s.other(key)
		}
	})
}

func (s *scan) choices(into *[]wireChoice) bool {
	if s.null() {
		return true
	}
	list := s.room.choices[:0]
	if list == nil {
		list = []wireChoice{}
	}
	ok := s.elements(func() bool {
		list = append(list, wireChoice{})
		return s.choice(&list[len(list)-1])
	})
	*into, s.room.choices = list, list
	return ok
}

func (s *scan) choice(w *wireChoice) bool {
	var seen uint32
	return s.members(func(key []byte) bool {
		switch string(key) {
		case "index":
			return once(&seen, 0) && s.optionalInt(&w.Index)
		case "message":
			return once(&seen, 1) && s.message(&w.Message)
		case "delta":
			return once(&seen, 2) && s.message(&w.Delta)
		case "text":
			return once(&seen, 3) && s.optionalText(&w.Text)
		case "finish_reason":
			return once(&seen, 4) && s.optionalWord(&w.FinishReason)
		case "stop_reason":
			return once(&seen, 5) && s.raw(&w.StopReason)
		case "matched_stop":
			return once(&seen, 6) && s.raw(&w.MatchedStop)
		case "token_ids":
			return once(&seen, 7) && (s.null() || s.varying(hole{ids: &w.TokenIDs}))
		case "prompt_token_ids":
			return once(&seen, 8) && s.int32s(&w.PromptTokenIDs)
		case "logprobs":
			return once(&seen, 9) && (s.null() || s.varying(hole{logprobs: &w.Logprobs}))
		case "usage":
			return once(&seen, 10) && s.usage(&w.Usage)
		case "meta_info":
			return once(&seen, 11) && s.slowly(&w.MetaInfo)
		case "error":
			return once(&seen, 12) && s.raw(&w.Error)
		case "weight_versions":
			return once(&seen, 13) && s.slowly(&w.Weights)
		default:
			return s.other(key)
		}
	})
}

func (s *scan) message(into **wireMessage) bool {
	if s.null() {
		return true
	}
	w := &s.room.message
	if !s.room.lend(1) {
		w = &wireMessage{}
	}
	*w = wireMessage{}
	*into = w
	var seen uint32
	return s.members(func(key []byte) bool {
		switch string(key) {
		case "content":
			return once(&seen, 0) && s.content(&w.Content)
		case "refusal":
			return once(&seen, 1) && s.optionalText(&w.Refusal)
		case "reasoning":
			return once(&seen, 2) && s.optionalText(&w.Reasoning)
		case "reasoning_content":
			return once(&seen, 3) && s.optionalText(&w.ReasoningContent)
		case "tool_calls":
			return once(&seen, 4) && s.toolCalls(&w.ToolCalls)
		case "reasoning_details":
			return once(&seen, 5) && s.slowly(&w.ReasoningDetails)
		case "function_call":
			return once(&seen, 6) && s.slowly(&w.FunctionCall)
		default:
			return s.other(key)
		}
	})
}

func (s *scan) logprobs(into **wireLogprobs) bool {
	w := &wireLogprobs{}
	*into = w
	var seen uint32
	return s.members(func(key []byte) bool {
		switch string(key) {
		case "content":
			return once(&seen, 0) && s.logprobList(&w.Content)
		case "refusal":
			return once(&seen, 1) && s.slowly(&w.Refusal)
		case "token_logprobs":
			return once(&seen, 2) && s.slowly(&w.TokenLogprobs)
		case "tokens":
			return once(&seen, 3) && s.slowly(&w.Tokens)
		default:
			return s.other(key)
		}
	})
}

func (s *scan) logprobList(into *[]wireLogprob) bool {
	if s.null() {
		return true
	}
	list := []wireLogprob{}
	ok := s.elements(func() bool {
		list = append(list, wireLogprob{})
		return s.logprob(&list[len(list)-1])
	})
	*into = list
	return ok
}

func (s *scan) logprob(w *wireLogprob) bool {
	var seen uint32
	return s.members(func(key []byte) bool {
		switch string(key) {
		case "logprob":
			return once(&seen, 0) && s.optionalNats(&w.Value)
		case "id":
			return once(&seen, 1) && s.optionalID(&w.ID)
		case "token":
			s.space()
			from := s.at
			return once(&seen, 2) && s.skip(0) && w.Token.UnmarshalJSON(s.b[from:s.at]) == nil
		default:
			return s.other(key)
		}
	})
}

// usage takes the object where its figures are plain ones; others are encoding/json's.
func (s *scan) usage(into *aside[wireUsage]) bool {
	if s.peek() != '{' {
		return s.slowly(into)
	}
	from := s.at
	into.of = &wireUsage{}
	if s.figures(into.of) {
		return true
	}
	s.at, into.of = from, nil
	return s.slowly(into)
}

func (s *scan) figures(w *wireUsage) bool {
	var seen uint32
	return s.members(func(key []byte) bool {
		switch string(key) {
		case "prompt_tokens":
			return once(&seen, 0) && s.figure(&w.Prompt)
		case "completion_tokens":
			return once(&seen, 1) && s.figure(&w.Completion)
		case "total_tokens":
			return once(&seen, 2) && s.figure(&w.Total)
		case "prompt_tokens_details":
			return once(&seen, 3) && s.parts(&w.Details)
		case "completion_tokens_details":
			return once(&seen, 4) && s.parts(&w.CompletionDetails)
		case "input_tokens":
			return once(&seen, 5) && s.figure(&w.Input)
		case "output_tokens":
			return once(&seen, 6) && s.figure(&w.Output)
		case "input_tokens_details":
			return once(&seen, 7) && s.parts(&w.InputDetails)
		case "prompt_cache_hit_tokens":
			return once(&seen, 8) && s.figure(&w.CacheHit)
		case "cached_tokens":
			return once(&seen, 9) && s.figure(&w.Cached)
		default:
			return s.other(key)
		}
	})
}

// figure takes a number that is a count as it stands.
func (s *scan) figure(into **count) bool {
	if s.null() {
		return true
	}
	n, ok := s.whole()
	*into = new(count)
	**into = count(n)
	return ok && n >= 0
}

func (s *scan) parts(into *aside[wireParts]) bool {
	if s.null() {
		return true
	}
	w := &wireParts{}
	into.of = w
	var seen uint32
	return s.members(func(key []byte) bool {
		switch string(key) {
		case "cached_tokens":
			return once(&seen, 0) && s.figure(&w.Cached)
		case "reasoning_tokens":
			return once(&seen, 1) && s.figure(&w.Reasoning)
		default:
			return s.other(key)
		}
	})
}

// toolCalls takes the empty list that many servers write in every answer; calls are encoding/json's.
func (s *scan) toolCalls(into *[]wireToolCall) bool {
	from := s.at
	if s.byte('[') && s.byte(']') {
		*into = []wireToolCall{}
		return true
	}
	s.at = from
	return s.slowly(into)
}
