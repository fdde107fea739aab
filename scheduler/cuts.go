package scheduler

import (
	"hash/maphash"

	"tranche/episode"
)

// cutter reads a prompt's text once and marks where it cuts it. Where it cuts depends on nothing behind the cut, so equal beginnings of
// two prompts are cut alike: at the ends of messages, and where the text grew by half. Between two cuts of which only the first is
// common a little sharing goes unseen.
type cutter struct {
	text  maphash.Hash
	bytes int // read
	next  int // bytes at which to cut next
	last  int // bytes of the last cut
	ratio float64
	marks []Mark
}

// Cuts, in bytes: none before firstCut, about 256 tokens; none at the end of a message that added less than an eighth.
const (
	firstCut   = 1024
	leastShare = 8
)

// marks cuts the prompt of a call. All of it is the last mark: samples of one task share that.
func (s *Scheduler) marks(c *episode.Call) []Mark {
	total := callBytes(c)
	if total < firstCut {
		return nil
	}
	k := cutter{next: firstCut, ratio: float64(c.PromptTokens) / float64(total)}
	k.text.SetSeed(s.seed)
	k.read(string(c.Tools))
	for _, m := range c.Messages {
		k.message(m)
	}
	if k.bytes > k.last {
		k.cut()
	}
	return k.marks
}

func (k *cutter) message(m episode.Message) {
	k.read(m.Role)
	k.read(m.Text())
	if m.ReasoningContent != nil {
		k.read(*m.ReasoningContent)
	}
	for _, c := range m.ToolCalls {
		k.read(c.ID)
		k.read(c.Function.Name)
		k.read(c.Function.Arguments)
	}
	k.text.WriteByte(1) // the end of a message
	if k.bytes >= firstCut && k.bytes-k.last >= k.last/leastShare {
		k.cut()
	}
}

// read takes in one piece of text, and cuts within it where it is time.
func (k *cutter) read(s string) {
	for k.bytes+len(s) >= k.next {
		n := k.next - k.bytes
		k.take(s[:n])
		s = s[n:]
		k.cut()
	}
	k.take(s)
	k.text.WriteByte(0) // the end of a piece: "ab", "c" is not "a", "bc"
}

func (k *cutter) take(s string) {
	k.text.WriteString(s)
	k.bytes += len(s)
}

func (k *cutter) cut() {
	k.last = k.bytes
	k.marks = append(k.marks, Mark{Hash: k.text.Sum64(), Tokens: int(float64(k.bytes) * k.ratio)})
	for k.next <= k.bytes {
		k.next += k.next / 2
	}
}
