package scheduler

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tranche/bucketing"
	"tranche/episode"
)

var update = flag.Bool("update", false, "rewrite the expected lines of testdata/core/*.txt")

// TestScenarios plays testdata/core/*.txt: one command a line, its expected output below it behind "> ". The first lines of
// testdata/core/README say what the commands are.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/core/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario found: %v", err)
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
	s := &scenario{names: map[string]int{}}
	var out strings.Builder
	for sc := bufio.NewScanner(strings.NewReader(string(b))); sc.Scan(); {
		line := sc.Text()
		if strings.HasPrefix(line, ">") {
			continue
		}
		out.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		for _, l := range s.play(t, words) {
			out.WriteString("> " + l + "\n")
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if out.String() != string(b) {
		t.Errorf("%s: the core says\n%s", path, out.String())
	}
}

type scenario struct {
	rules    Rules
	replicas []ReplicaConfig
	names    map[string]int
	core     *Core
	now      Time
}

func (s *scenario) play(t *testing.T, words []string) []string {
	arg := args(t, words)
	switch words[0] {
	case "rules":
		s.rules = Rules{
			MaxAttempts: arg.int("attempts"), FailStreak: arg.int("streak"), Cooldown: arg.time("cooldown"), AgeLimit: arg.time("age"),
			Patience: arg.time("patience"), BackoffBase: arg.time("backoff"), RampCalls: arg.int("ramp"), MoveAfter: arg.time("move"), StartLimit: arg.time("start"), MinHold: arg.time("hold"), StaleAfter: arg.time("stale"), StallAfter: arg.time("stall"), Linger: arg.time("linger"),
			SharersInRow: arg.int("sharers"),
			EarlyYield:   arg.has("early"), HedgeAfter: arg.time("hedge-after"),
		}
		if h := arg["hedge"]; h != "" {
			share, err := strconv.ParseFloat(h, 64)
			if err != nil {
				t.Fatal(err)
			}
			s.rules.Hedge = share
		}
		if bounds := arg.ints(t, "classes"); bounds != nil {
			s.rules.Ladder, _ = bucketing.NewLadder(bounds)
		}
		return nil
	case "replica":
		s.names[words[1]] = len(s.replicas)
		s.replicas = append(s.replicas, ReplicaConfig{Name: words[1], MaxCalls: arg.int("calls"), Strict: arg.has("strict"), Rows: arg.int("rows"), Shapes: arg.ints(t, "shapes"), Continues: arg.has("continues"),
			Capacity: episode.Capacity{KVTokens: arg.int("kv"), ContextTokens: arg.int("context"), Sequences: arg.int("seqs"), BlockTokens: arg.int("block")}})
		return nil
	}
	if s.core == nil {
		c, err := NewCore(s.rules, s.replicas)
		if err != nil {
			t.Fatal(err)
		}
		s.core = c
	}
	switch words[0] {
	case "at":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatal(err)
		}
		s.now = d
		return nil
	case "offer":
		s.core.Offer(Request{
			Ticket: ticket(t, words[1]), Episode: arg.or("ep", "e"+words[1]), Group: arg.or("group", "g"+words[1]),
			Cell: episode.Cell{DataSource: arg["cell"]}, Prompt: arg.int("prompt"), Exact: arg.has("exact"), Want: arg.int("want"),
			Context: arg.int("cap"), MinUseful: arg.int("useful"), Turns: arg.int("turns"), GroupSize: arg.int("size"),
			Prefix: marks(t, arg["begins"]), Continues: arg.has("continues"),
		}, s.now)
		return nil
	case "settle":
		return []string{s.settle(t, words, arg)}
	case "withdraw":
		return []string{fmt.Sprint(s.core.Withdraw(ticket(t, words[1])))}
	case "act":
		s.core.Act(words[1], words[2], s.now)
		return nil
	case "leave":
		s.core.Leave(words[1])
		return nil
	case "observe":
		s.core.Observe(s.names[words[1]], arg.load(), s.now)
		return nil
	case "next":
		return s.next()
	case "state":
		return s.state()
	case "nomore":
		s.core.NoMore()
		return nil
	case "score":
		s.core.Score(arg.int("change"))
		return nil
	case "bounds":
		return s.bounds()
	}
	t.Fatalf("unknown command %q", words[0])
	return nil
}

func (s *scenario) settle(t *testing.T, words []string, arg arguments) string {
	if c := s.core.calls[ticket(t, words[1])]; c == nil || c.state != running {
		return "it is not running"
	}
	if words[2] == "ok" {
		return decisionName[s.core.Settle(ticket(t, words[1]), nil, Usage{arg.int("tokens"), arg.intOr("cached", -1)}, s.now)]
	}
	if words[2] == "cut" {
		return decisionName[s.core.Cut(ticket(t, words[1]), arg.int("prompt"), Usage{arg.int("tokens"), -1}, s.now)]
	}
	if words[2] == "whole" {
		return decisionName[s.core.Whole(ticket(t, words[1]), s.now)]
	}
	class := episode.Class(words[2])
	f := &episode.Fault{Class: class, Cause: errors.New("scripted"), Died: arg.has("died"), After: arg.time("after"), Limit: arg.int("limit"), Prompt: arg.int("prompt"),
		Retry: class != episode.ClassBadRequest && class != episode.ClassCancelled && class != episode.ClassAuth}
	d := s.core.Settle(ticket(t, words[1]), f, Usage{}, s.now)
	if f.Class != class {
		return decisionName[d] + " " + string(f.Class)
	}
	return decisionName[d]
}

var decisionName = map[Decision]string{Finished: "finished", Retrying: "retrying", Full: "full", Outlived: "outlived", Lost: "lost", Continuing: "continuing"}

func (s *scenario) next() []string {
	launches, rejects, wait := s.core.Next(s.now)
	var out []string
	for _, r := range rejects {
		why := "context full"
		if r.Fault != nil {
			why = string(r.Fault.Class)
		}
		out = append(out, fmt.Sprintf("reject %d %s", r.Ticket, why))
	}
	for _, l := range launches {
		line := fmt.Sprintf("launch %d on %s max=%d class=%d attempt=%d", l.Ticket, s.replicas[l.Replica].Name, l.MaxTokens, l.Class, l.Attempt)
		if l.Hedge {
			line += " hedge"
		}
		if l.Cut {
			line += " cut"
		}
		out = append(out, line)
	}
	if wait < 0 {
		return append(out, "wait for ever")
	}
	return append(out, "wait "+wait.String())
}

func (s *scenario) state() []string {
	rs, waiting := s.core.State()
	out := []string{fmt.Sprintf("waiting %d", waiting)}
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%s running=%d promised=%d/%d open=%v", r.Name, r.Running, r.Promised, r.Budget, r.Open))
	}
	return out
}

// bounds tells what kept more work from each replica, and for how long.
func (s *scenario) bounds() (out []string) {
	for _, a := range s.core.Accounts(s.now) {
		line := a.Endpoint
		for _, b := range AllBounds() {
			if a.Spent[b] > 0 {
				line += fmt.Sprintf(" %v=%v", b, a.Spent[b])
			}
		}
		out = append(out, line+fmt.Sprintf(" calls=%.2f", a.MeanCalls()))
	}
	return out
}

type arguments map[string]string

// load is a reading of a server's gauges.
func (a arguments) load() episode.Load {
	l := episode.Load{Preemptions: episode.Ptr(int64(a.int("preempted")))}
	if a.has("generated") {
		l.GeneratedTokens = episode.Ptr(int64(a.int("generated")))
	}
	if a.has("steps") {
		l.Steps = episode.Ptr(int64(a.int("steps")))
	}
	if a.has("waiting") {
		l.Waiting = episode.Ptr(a.int("waiting"))
	}
	if a.has("running") {
		l.Running = episode.Ptr(a.int("running"))
	}
	if used, err := strconv.ParseFloat(a["used"], 64); err == nil {
		l.KVUsed = &used
	}
	if a.has("firsts") {
		l.Firsts, l.FirstSeconds, l.Computed = episode.Ptr(int64(a.int("firsts"))), episode.Ptr(a.time("took").Seconds()), episode.Ptr(int64(a.int("computed")))
	}
	return l
}

func args(t *testing.T, words []string) arguments {
	a := arguments{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		a[k] = v
	}
	return a
}

func (a arguments) has(k string) bool {
	_, ok := a[k]
	return ok
}

func (a arguments) or(k, other string) string {
	if v, ok := a[k]; ok {
		return v
	}
	return other
}

func (a arguments) int(k string) int {
	n, _ := strconv.Atoi(a[k])
	return n
}

// ints is a list by comma; nil when there is none.
func (a arguments) ints(t *testing.T, k string) []int {
	var list []int
	for _, word := range strings.FieldsFunc(a[k], func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

func (a arguments) intOr(k string, other int) int {
	if _, ok := a[k]; ok {
		return a.int(k)
	}
	return other
}

func (a arguments) time(k string) time.Duration {
	d, _ := time.ParseDuration(a[k])
	return d
}

func ticket(t *testing.T, s string) Ticket {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("a call is named by a number, not %q", s)
	}
	return Ticket(n)
}

// marks reads NAME:TOKENS, several by comma: a prompt begins with the text NAME as far as token TOKENS.
func marks(t *testing.T, s string) []Mark {
	var all []Mark
	for _, m := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		name, tokens, _ := strings.Cut(m, ":")
		n, err := strconv.Atoi(tokens)
		if err != nil {
			t.Fatalf("begins=%s: expected NAME:TOKENS", s)
		}
		h := fnv.New64a()
		h.Write([]byte(name))
		all = append(all, Mark{Hash: h.Sum64(), Tokens: n})
	}
	return all
}
