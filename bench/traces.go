package bench

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// Traces reads workloads from recorded traces: one folder a trace, with an ORIGIN.txt beside the files. The traces are not part of the
// module; ErrNoTraces says that they are not there.
type Traces struct {
	Dir string
}

// ErrNoTraces is in the error of a reader whose file is missing.
var ErrNoTraces = errors.New("trace not found")

// FindTraces looks for the traces: $TRANCHE_DATA, else shared/data beside the repository, seen from the working directory.
func FindTraces() (Traces, error) {
	if dir := os.Getenv("TRANCHE_DATA"); dir != "" {
		return Traces{dir}, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return Traces{}, fmt.Errorf("find the traces: %w", err)
	}
	for {
		data := filepath.Join(dir, "..", "shared", "data")
		if s, err := os.Stat(data); err == nil && s.IsDir() {
			return Traces{data}, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return Traces{}, fmt.Errorf("%w: neither $TRANCHE_DATA nor a folder ../shared/data beside the repository", ErrNoTraces)
		}
		dir = up
	}
}

func (t Traces) open(name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(t.Dir, filepath.FromSlash(name)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoTraces, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open a trace: %w", err)
	}
	return f, nil
}

// LongestAction caps recorded actions: longer gaps in the sessions are people, not tools.
const LongestAction = 60 * time.Second

// codingTurn is one call of a recorded session: seconds, prompt, answer and shared tokens, server and think seconds, stop, first token.
type codingTurn struct {
	prompt, out, shared int
	think               float64
	stop                string
}

func (c *codingTurn) UnmarshalJSON(b []byte) error {
	var f [8]any
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	numbers := [4]float64{}
	for i, k := range []int{1, 2, 3, 5} {
		n, ok := f[k].(float64)
		if !ok && (k != 5 || f[k] != nil) { // a call without a recorded gap came at once
			return fmt.Errorf("field %d of a turn is %v, expected a number", k, f[k])
		}
		numbers[i] = n
	}
	c.stop, _ = f[6].(string)
	c.prompt, c.out, c.shared, c.think = int(numbers[0]), int(numbers[1]), int(numbers[2]), numbers[3]
	return nil
}

// CodingAgent is n recorded coding-agent sessions, drawn by the seed, as growing multi-turn episodes. All lengths are multiplied by one
// factor: 0.9 · contextTokens over the longest context of the whole trace (894k tokens), so that every episode fits and their
// proportions stay. Where a context grew, the next prompt is the whole context and what is new; where it fell (compaction) only the
// recorded shared part is kept. Actions are the recorded think times, at most LongestAction.
func (t Traces) CodingAgent(n, contextTokens int, seed uint64) (Workload, error) {
	sessions, err := t.codingSessions()
	if err != nil {
		return Workload{}, err
	}
	longest := 0
	for _, s := range sessions {
		for _, c := range s {
			longest = max(longest, c.prompt+c.out)
		}
	}
	scale := 0.9 * float64(contextTokens) / float64(longest)
	w := Workload{Name: "coding-agent"}
	for i, k := range rand.New(rand.NewPCG(seed, 0xc0de)).Perm(len(sessions)) {
		if i == n {
			break
		}
		e := codingEpisode(sessions[k], scale)
		e.Group = strconv.Itoa(k)
		w.Episodes = append(w.Episodes, e)
	}
	w.MaxNew = longestAnswer(w)
	return w, nil
}

func (t Traces) codingSessions() ([][]codingTurn, error) {
	f, err := t.open("trace-coding-agent/episodes.jsonl")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all [][]codingTurn
	err = eachLine(f, func(line []byte) error {
		var s struct{ Turns []codingTurn }
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		if len(s.Turns) > 0 {
			all = append(all, s.Turns)
		}
		return nil
	})
	return all, err
}

// codingEpisode scales a session. context is what the scaled episode holds, kept by hand because rounding adds up.
func codingEpisode(turns []codingTurn, scale float64) Episode {
	e := Episode{Domain: "coding-agent"}
	scaled := func(n int) int { return int(math.Round(float64(n) * scale)) }
	context := 0
	for k, c := range turns {
		prompt := scaled(c.prompt)
		t := Turn{New: prompt - context, Out: max(scaled(c.out), 1), Kind: "tool"}
		if c.stop == "end_turn" {
			t.Kind = "user"
		}
		if k > 0 && c.prompt < turns[k-1].prompt {
			kept := min(scaled(c.shared), context, max(prompt-1, 0))
			t.Cut, t.New = context-kept, prompt-kept
		}
		t.New = max(t.New, 1)
		context += t.New + t.Out - t.Cut
		if k < len(turns)-1 {
			t.Tool = min(time.Duration(turns[k+1].think*float64(time.Second)), LongestAction)
		}
		e.Turns = append(e.Turns, t)
	}
	return e
}

// R1 is groups of samples with the lengths of a DeepSeek-R1 service: each group draws a prompt length, and its answers keep the recorded
// distribution of all answers while siblings are alike: ranks come from normal variables of which three quarters are the group's (the
// share that a spread of 0.9 between and 0.5 within groups has, in logarithms).
func (t Traces) R1(groups, samples int, seed uint64) (Workload, error) {
	prompts, outs, err := t.pairs("trace-reasoning-servegen/sample20k.csv", "input_tokens", "output_tokens")
	if err != nil {
		return Workload{}, err
	}
	slices.Sort(outs)
	r := rand.New(rand.NewPCG(seed, 0x21))
	normal := distuv.UnitNormal
	w := Workload{Name: "r1", MaxNew: outs[len(outs)-1]}
	for g := range groups {
		prompt, of := max(prompts[r.IntN(len(prompts))], 1), r.NormFloat64()
		for range samples {
			z := math.Sqrt(0.764)*of + math.Sqrt(1-0.764)*r.NormFloat64()
			rank := min(int(normal.CDF(z)*float64(len(outs))), len(outs)-1)
			w.Episodes = append(w.Episodes, Episode{
				Group: strconv.Itoa(g), Domain: "r1", Prefix: []Segment{{mix(uint64(g)), prompt}},
				Turns: []Turn{{New: prompt, Out: max(outs[rank], 1)}},
			})
		}
	}
	return w, nil
}

// Mooncake is the first requests of a recorded trace ("conversation" or "synthetic") with their shared prefixes: equal leading block
// ids of 512 tokens are equal tokens. Each is asked samples times, as one group. Requests that do not fit contextTokens are left out.
func (t Traces) Mooncake(name string, n, samples, contextTokens int) (Workload, error) {
	f, err := t.open("trace-mooncake/" + name + "_trace.jsonl")
	if err != nil {
		return Workload{}, err
	}
	defer f.Close()
	w := Workload{Name: "mooncake-" + name}
	err = eachLine(f, func(line []byte) error {
		var q struct {
			Input  int      `json:"input_length"`
			Output int      `json:"output_length"`
			Hashes []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(line, &q); err != nil {
			return err
		}
		if len(w.Episodes) == n*samples || q.Input < 1 || q.Input+q.Output > contextTokens {
			return nil
		}
		e := Episode{Group: strconv.Itoa(len(w.Episodes) / samples), Domain: w.Name, Turns: []Turn{{New: q.Input, Out: max(q.Output, 1)}}}
		left := q.Input
		for _, h := range q.Hashes {
			if k := min(left, 512); k > 0 {
				e.Prefix = append(e.Prefix, Segment{mix(h), k})
				left -= k
			}
		}
		for range samples {
			w.Episodes = append(w.Episodes, e)
		}
		return nil
	})
	w.MaxNew = longestAnswer(w)
	return w, err
}

// Azure is n requests of a recorded hour ("code" or "conv"), drawn by the seed: single calls that share nothing.
func (t Traces) Azure(name string, n int, seed uint64) (Workload, error) {
	return t.singles("azure-"+name, "trace-azure2023/"+name+".csv", "ContextTokens", "GeneratedTokens", n, seed)
}

// Summaries is n long-document summaries, drawn by the seed: prompts of nearly one length, the null case for length buckets.
func (t Traces) Summaries(n int, seed uint64) (Workload, error) {
	return t.singles("summaries", "trace-summarisation-vidur/arxiv_summarization.every3rd.csv", "num_prefill_tokens", "num_decode_tokens", n, seed)
}

func (t Traces) singles(name, file, prompt, out string, n int, seed uint64) (Workload, error) {
	prompts, outs, err := t.pairs(file, prompt, out)
	if err != nil {
		return Workload{}, err
	}
	w := Workload{Name: name}
	for i, k := range rand.New(rand.NewPCG(seed, 0x517)).Perm(len(prompts)) {
		if i == n {
			break
		}
		w.Episodes = append(w.Episodes, Episode{Group: strconv.Itoa(i), Domain: name, Turns: []Turn{{New: max(prompts[k], 1), Out: max(outs[k], 1)}}})
	}
	w.MaxNew = longestAnswer(w)
	return w, nil
}

func longestAnswer(w Workload) int {
	n := 1
	for _, e := range w.Episodes {
		for _, t := range e.Turns {
			n = max(n, t.Out)
		}
	}
	return n
}

// pairs reads two columns of whole numbers.
func (t Traces) pairs(file, first, second string) (a, b []int, err error) {
	f, err := t.open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	rows := csv.NewReader(bufio.NewReader(f))
	head, err := rows.Read()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: read the header: %w", f.Name(), err)
	}
	columns := []int{slices.Index(head, first), slices.Index(head, second)}
	if columns[0] < 0 || columns[1] < 0 {
		return nil, nil, fmt.Errorf("%s:1: columns %v: expected %s and %s among them", f.Name(), head, first, second)
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			if len(a) == 0 {
				return nil, nil, fmt.Errorf("%s: no rows", f.Name())
			}
			return a, b, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		line, _ := rows.FieldPos(0)
		x, errX := strconv.Atoi(row[columns[0]])
		y, errY := strconv.Atoi(row[columns[1]])
		if err := errors.Join(errX, errY); err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", f.Name(), line, err)
		}
		a, b = append(a, x), append(b, y)
	}
}

// eachLine hands over a file's lines and names the line in errors.
func eachLine(f *os.File, take func([]byte) error) error {
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for n := 1; s.Scan(); n++ {
		if err := take(s.Bytes()); err != nil {
			return fmt.Errorf("%s:%d: %w", f.Name(), n, err)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return nil
}
