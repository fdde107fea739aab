package inference

// claimsOf fills in what servers of a kind do, where no answer has said anything: read in their source or seen on one of
// them, not on this one. A proxy's claims are lost: what stands behind it may do it, and the proxy may drop it.
func (c *Capabilities) claimsOf(k Kind) {
	from := "usual for " + string(k)
	switch k {
	case KindVLLM, KindSim:
		c.claimVLLM(from)
	case KindSGLang:
		c.claimSGLang(from)
	case KindLlama:
		c.claimLlama(from)
	case KindTensorRT:
		c.claimTensorRT(from)
	case KindOllama:
		c.claimNoIDs(from)
		usually(&c.N, false, from)
		usually(&c.UnknownFields, Ignores, from)
		usually(&c.Overflow, Overflow{Status: 200}, from+": it drops old messages and says nothing")
	case KindOpenAI:
		c.claimNoIDs(from)
		usually(&c.N, true, from)
		usually(&c.UnknownFields, Refuses, from)
	}
}

func (c *Capabilities) claimVLLM(from string) {
	usually(&c.TokenizeText, "/tokenize", from)
	usually(&c.TokenizeMessages, "/tokenize", from)
	for _, f := range []*Fact[bool]{&c.TokenIDsIn, &c.PromptKept, &c.TokenIDsOut, &c.ChatTokenIDs, &c.ChatPromptIDs, &c.Logprobs, &c.N, &c.ListPrompts, &c.Usage, &c.PrefixRetained} {
		usually(f, true, from)
	}
	usually(&c.LogprobsMode, "raw", from+", without --logprobs-mode")
	usually(&c.WeightVersion, false, from)
	usually(&c.UnknownFields, Ignores, from)
	usually(&c.Priority, LowFirst, from+", with --scheduling-policy priority")
}

func (c *Capabilities) claimSGLang(from string) {
	usually(&c.TokenizeText, "/tokenize", from)
	usually(&c.TokenizeMessages, "/tokenize", from)
	usually(&c.Render, "", from)
	usually(&c.Generate, "/generate", from)
	for _, f := range []*Fact[bool]{&c.TokenIDsIn, &c.PromptKept, &c.ChatTokenIDs, &c.ChatPromptIDs, &c.Logprobs, &c.N, &c.ListPrompts, &c.Usage, &c.PrefixRetained, &c.WeightVersion} {
		usually(f, true, from)
	}
	usually(&c.TokenIDsOut, false, from)
	usually(&c.UnknownFields, Ignores, from)
	usually(&c.Priority, HighFirst, from+", with --enable-priority-scheduling")
}

func (c *Capabilities) claimLlama(from string) {
	usually(&c.TokenizeText, "/tokenize", from)
	usually(&c.TokenizeMessages, "", from)
	usually(&c.Render, "/apply-template", from)
	usually(&c.Generate, "/completion", from)
	for _, f := range []*Fact[bool]{&c.TokenIDsIn, &c.PromptKept, &c.TokenIDsOut, &c.ChatTokenIDs, &c.Logprobs, &c.N, &c.ListPrompts, &c.Usage, &c.CachedTokens, &c.PrefixRetained} {
		usually(f, true, from)
	}
	usually(&c.ChatPromptIDs, false, from)
	usually(&c.WeightVersion, false, from)
	usually(&c.UnknownFields, Ignores, from)
	usually(&c.Priority, NoPriority, from)
}

func (c *Capabilities) claimTensorRT(from string) {
	for _, f := range []*Fact[bool]{&c.TokenIDsIn, &c.ListPrompts, &c.N, &c.Logprobs} {
		usually(f, true, from)
	}
	usually(&c.WeightVersion, false, from)
	usually(&c.UnknownFields, Refuses, from)
	usually(&c.Priority, HighFirst, from+", a number from 0 to 1, with waiting_queue_policy=priority")
}

// claimNoIDs is what servers of plain chat do.
func (c *Capabilities) claimNoIDs(from string) {
	for _, f := range []*Fact[string]{&c.TokenizeText, &c.TokenizeMessages, &c.Render, &c.Generate} {
		usually(f, "", from)
	}
	for _, f := range []*Fact[bool]{&c.TokenIDsIn, &c.TokenIDsOut, &c.ChatTokenIDs, &c.ChatPromptIDs, &c.WeightVersion} {
		usually(f, false, from)
	}
	usually(&c.Logprobs, true, from)
	usually(&c.Usage, true, from)
	usually(&c.Priority, NoPriority, from)
}

// usually claims a value where nothing is known.
func usually[T any](f *Fact[T], v T, from string) {
	if !f.Known() {
		f.claim(v, from)
	}
}
