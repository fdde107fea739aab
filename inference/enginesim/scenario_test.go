package enginesim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected lines of testdata/model/*.txt")

// TestScenarios plays testdata/model/*.txt: one command a line, what the model answers below it behind "> ". The README there says
// what the commands are.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/model/*.txt")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d scenarios found: %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) { playFile(t, f) })
	}
}

func playFile(t *testing.T, path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &scenario{t: t, path: path, config: Config{ContextTokens: 64, KVTokens: 64, BlockTokens: 4, MaxSeqs: 8, StepBudget: 16, Step: StepTime{Base: 1e-3}}}
	var out strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if strings.HasPrefix(line, ">") {
			continue
		}
		s.line = i + 1
		out.WriteString(line + "\n")
		if words := strings.Fields(line); len(words) > 0 && words[0][0] != '#' {
			for _, l := range s.play(words) {
				out.WriteString("> " + l + "\n")
			}
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if out.String() != string(b) {
		t.Errorf("%s: the model says\n%s", path, out.String())
	}
}

type scenario struct {
	t      *testing.T
	path   string
	line   int
	config Config
	model  *Model
	now    time.Duration
}

func (s *scenario) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s:%d: %s", s.path, s.line, fmt.Sprintf(format, args...))
}

func (s *scenario) play(words []string) []string {
	s.t.Helper()
	switch words[0] {
	case "engine":
		s.set(words[1:])
		return nil
	case "time":
		s.config.Step = StepTime{}
		s.set(words[1:])
		return nil
	}
	if s.model == nil {
		if err := s.config.Validate(); err != nil {
			s.fail("%v", err)
		}
		s.model = NewModel(s.config)
	}
	defer checkLaws(s.t, s.model)
	switch words[0] {
	case "offer":
		s.model.Offer(s.request(words), s.now)
		return nil
	case "abort":
		return []string{fmt.Sprint(s.model.Abort(uint64(s.number(words[1]))))}
	case "clear":
		s.model.ClearCache()
		return nil
	case "step":
		return s.steps(words)
	case "run":
		return s.run(words)
	case "cached":
		g := s.text(words[1])
		c := newContent(&Request{Outline: g, Salt: s.model.salt(0)}, s.config.BlockTokens)
		return []string{fmt.Sprintf("%d tokens", s.model.pool.match(c, length(g)/s.config.BlockTokens).hit*s.config.BlockTokens)}
	case "state":
		return s.state()
	}
	s.fail("unknown command %q", words[0])
	return nil
}

// set reads settings of the engine and of its step time.
func (s *scenario) set(words []string) {
	s.t.Helper()
	numbers := map[string]*int{
		"kv": &s.config.KVTokens, "block": &s.config.BlockTokens, "seqs": &s.config.MaxSeqs, "budget": &s.config.StepBudget, "context": &s.config.ContextTokens,
	}
	times := map[string]*float64{
		"base": &s.config.Step.Base, "floor": &s.config.Step.Floor, "token": &s.config.Step.PerToken, "seq": &s.config.Step.PerSeq,
		"read": &s.config.Step.PerRead, "pair": &s.config.Step.PerPair,
	}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch {
		case numbers[name] != nil:
			*numbers[name] = s.number(value)
		case times[name] != nil:
			d, err := time.ParseDuration(value)
			if err != nil {
				s.fail("%s: %v", w, err)
			}
			*times[name] = d.Seconds()
		case name == "nocache":
			s.config.NoPrefixCache = true
		case name == "null":
			s.config.NullBlock = true
		case name == "priority":
			s.config.Priority = true
		case name == "batching":
			s.config.Batching = Batching(value)
		case name == "shapes":
			s.config.Shapes = nil
			for _, n := range strings.Split(value, ",") {
				s.config.Shapes = append(s.config.Shapes, s.number(n))
			}
		default:
			s.fail("unknown setting %q", w)
		}
	}
}

// request reads "offer N prompt=TEXT[:FROM]:TOKENS,… out=TOKENS [then=TEXT] [salt=N] [priority=N]".
func (s *scenario) request(words []string) Request {
	s.t.Helper()
	q := Request{ID: uint64(s.number(words[1])), EachToken: true}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "prompt":
			q.Outline = s.text(value)
			last := q.Outline[len(q.Outline)-1]
			q.Continuation.Content, q.Continuation.From = last.Content, last.From+last.Tokens
		case "out":
			q.Continuation.Tokens = s.number(value)
		case "then":
			q.Continuation.Content, q.Continuation.From = hashText(0, value), 0
		case "salt":
			q.Salt = uint64(s.number(value))
		case "priority":
			q.Priority = s.number(value)
		case "quiet":
			q.EachToken = false
		default:
			s.fail("unknown setting %q", w)
		}
	}
	return q
}

func (s *scenario) text(value string) (out []Segment) {
	s.t.Helper()
	for _, part := range strings.Split(value, ",") {
		f := strings.Split(part, ":")
		g := Segment{Content: hashText(0, f[0])}
		if len(f) == 3 {
			g.From = s.number(f[1])
		}
		g.Tokens = s.number(f[len(f)-1])
		out = append(out, g)
	}
	return out
}

func (s *scenario) number(text string) int {
	s.t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		s.fail("expected a number, found %q", text)
	}
	return n
}

func (s *scenario) steps(words []string) (out []string) {
	n := 1
	if len(words) > 1 {
		n = s.number(words[1])
	}
	for range n {
		events, d := s.model.Step(s.now)
		out = append(out, s.tell(events, d))
	}
	return out
}

// run goes on until nothing is left to do, or until a time, telling only the steps in which something happens.
func (s *scenario) run(words []string) (out []string) {
	until := Never
	if len(words) > 1 {
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.fail("%v", err)
		}
		until = d
	}
	for !s.model.Idle() && s.now < until {
		events, d := s.model.Advance(s.now, until)
		out = append(out, s.tell(events, d))
		if d == 0 {
			break
		}
	}
	return out
}

func (s *scenario) tell(events []Event, d time.Duration) string {
	s.now += d
	var b strings.Builder
	fmt.Fprintf(&b, "%v +%v", rounded(s.now), rounded(d))
	for _, v := range events {
		switch v.Kind {
		case Admitted:
			fmt.Fprintf(&b, "; %d admitted", v.ID)
			if v.Tokens > 0 {
				fmt.Fprintf(&b, " cached=%d", v.Tokens)
			}
			if v.Queued > 0 {
				fmt.Fprintf(&b, " queued=%v", rounded(v.Queued))
			}
		case Sampled:
			fmt.Fprintf(&b, "; %d sampled %d", v.ID, v.Tokens)
		case Done:
			fmt.Fprintf(&b, "; %d done", v.ID)
		case Preempted:
			fmt.Fprintf(&b, "; %d preempted", v.ID)
		}
	}
	return b.String()
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

func (s *scenario) state() []string {
	c := s.model.Counters()
	return []string{fmt.Sprintf("running=%d waiting=%d blocks=%d/%d done=%d preempted=%d computed=%d hits=%d/%d",
		c.Running, c.Waiting, c.BlocksUsed, c.Blocks, c.Done, c.Preemptions, c.ComputedTokens, c.PrefixHits, c.PrefixQueries)}
}
