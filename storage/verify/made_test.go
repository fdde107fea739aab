package verify

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"tranche/episode"
	"tranche/storage"
)

const madeRun = "run"

func madeTask(name string) *episode.Task {
	return &episode.Task{
		ID: name, Hash: episode.ID("hash", name), DataSource: "made", Answer: episode.Ptr("7"), Extra: []byte(`{"n":1}`), Tools: []byte(`["calculator"]`),
		Messages: []episode.Message{{Role: episode.RoleSystem, Content: episode.Ptr("You work with tools.")}, {Role: episode.RoleUser, Content: episode.Ptr("How much is " + name + "?")}},
	}
}

func madeEpisode(task string, sample, samples int) *episode.Episode {
	e := episode.New(madeRun, episode.Draw{Task: madeTask(task), Samples: samples}, sample, episode.Sampling{Logprobs: true, TokenIDs: true}, episode.Budget{},
		time.Date(2026, 11, 30, 12, 0, sample, 0, time.UTC))
	e.Timing.Total = 2 * time.Second
	return e
}

// reply is an answer with ids: the prompt that the server saw, and as many sampled ones as it says.
func reply(m episode.Message, finish string, prompt []int32, from int32, n int, version int32) (*episode.Reply, episode.Turn) {
	r := &episode.Reply{Message: m, Finish: finish, PromptIDs: prompt, Version: &version, Model: "made"}
	for i := range n {
		r.SampledIDs = append(r.SampledIDs, from+int32(i))
		r.Logprobs = append(r.Logprobs, episode.Logprob{Value: -0.5, Known: true})
	}
	return r, episode.Turn{PromptTokens: episode.Ptr(int32(len(prompt))), CompletionTokens: episode.Ptr(int32(n)), Finish: finish, Endpoint: "a", Exchange: episode.ExchangeChat,
		VersionStart: &version, VersionEnd: &version, Queue: 10 * time.Millisecond, Service: 200 * time.Millisecond}
}

func answer(text string) episode.Message {
	return episode.Message{Role: episode.RoleAssistant, Content: &text}
}

func calling(id string) episode.Message {
	return episode.Message{Role: episode.RoleAssistant, ToolCalls: []episode.ToolCall{{ID: id, Type: "function", Function: episode.Function{Name: "calculator", Arguments: `{"expression":"3+4"}`}}}}
}

// withTool plays two turns: a tool call, and the answer. With broken the second prompt does not go on from the first.
func withTool(e *episode.Episode, broken bool) *episode.Episode {
	e.AddReply(reply(calling("c1"), episode.FinishToolCalls, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 10, 4, 1))
	e.AddObservation(episode.Observation{CallID: "c1", Name: "calculator", Text: "7", Status: episode.ActionOK, Wall: 5 * time.Millisecond})
	next := []int32{1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 50, 51}
	if broken {
		next = []int32{1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 99, 50, 51}
	}
	e.AddReply(reply(answer("It is 7."), episode.FinishStop, next, 20, 5, 2))
	return judged(e)
}

// written plays a call that stood in the text.
func written(e *episode.Episode) *episode.Episode {
	m := answer("<calculator>3+4</calculator>")
	m.Written = &episode.Written{Call: episode.ToolCall{ID: "text_0", Type: "function", Function: episode.Function{Name: "calculator", Arguments: `{"expression":"3+4"}`}}}
	e.AddReply(reply(m, episode.FinishStop, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 10, 3, 1))
	e.AddObservation(episode.Observation{CallID: "text_0", Name: "calculator", Text: "7", Status: episode.ActionOK, Wall: time.Millisecond, Told: &episode.Message{Role: episode.RoleUser, Content: episode.Ptr("<output>7</output>")}})
	e.AddReply(reply(answer("It is 7."), episode.FinishStop, []int32{1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 60}, 20, 3, 1))
	return judged(e)
}

func judged(e *episode.Episode) *episode.Episode {
	score := float64(e.Sample % 2)
	credit := make([]float64, len(e.Turns))
	e.Verdict = episode.Verdict{Total: &score, Credit: credit, Rewards: []episode.Reward{{Name: "answer", Score: &score, Weight: 1, Outcome: episode.Scored, Credit: credit}}}
	return e
}

func failing(e *episode.Episode) *episode.Episode {
	e.Fail(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassTimeout, Cause: errors.New("no answer in 2s"),
		Attempts: []episode.Attempt{{Endpoint: "a", Class: episode.ClassTimeout, Began: e.Created, Ended: e.Created.Add(time.Second), Cause: "slow"}}})
	return e
}

func deflated(t testing.TB, body string) episode.Raw {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err == nil {
		_, err = w.Write([]byte(body))
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return episode.Raw{Status: 200, Bytes: int64(len(body)), Held: int64(len(body)), Deflated: b.Bytes()}
}

// goodRun is a run with tools, a prefix break, calls in the text, kept answers, a failed sample, rows that wait in the journal, rescored rewards and
// the files beside the dataset.
func goodRun(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "good")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := storage.Open(storage.Config{Dir: dir, RunFile: []byte("run_id: run\n"), SyncInterval: time.Microsecond, MinPartAge: time.Hour, MaxPartAge: time.Hour})
	ok(err)
	kept := withTool(madeEpisode("tools", 0, 2), false)
	kept.Raw = []episode.Raw{deflated(t, `{"a":1}`)}
	for _, e := range []*episode.Episode{kept, withTool(madeEpisode("tools", 1, 2), false), withTool(madeEpisode("broken", 0, 2), true), withTool(madeEpisode("broken", 1, 2), true)} {
		ok(w.Write(context.Background(), e))
	}
	ok(w.Flush())
	for _, e := range []*episode.Episode{written(madeEpisode("text", 0, 1)), withTool(madeEpisode("half", 0, 2), false), failing(madeEpisode("half", 1, 2)),
		withTool(madeEpisode("open", 0, 3), false), withTool(madeEpisode("open", 1, 3), false)} {
		ok(w.Write(context.Background(), e))
	}
	ok(w.WriteEndpoint("host", map[string]int{"a": 1}))
	ok(w.WriteAccount(map[string]int{"a": 1}))
	ok(w.WriteTaskStates(map[string]int{"a": 1}))
	ok(w.WriteSummary(nil))
	ok(w.Close())
	_, err = storage.Rescore(context.Background(), storage.Rescoring{Dir: dir, Set: "again", Digest: "d", Rule: json.RawMessage(`"mean"`), Judge: func(_ context.Context, rows []*storage.Row, _ bool) error {
		for _, r := range rows {
			v := r.Verdict()
			v.Total, v.Rewards[0].Score = episode.Ptr(0.5), episode.Ptr(0.5)
			r.SetVerdict(v)
		}
		return nil
	}})
	ok(err)
	return dir
}

// mean is the rule of the made rows.
func mean(list []storage.Reward) *float64 {
	if len(list) == 0 {
		return nil
	}
	return list[0].Score
}

func madeConfig(dir string) Config {
	return Config{Dir: dir, RunID: madeRun, Total: mean, TotalOfSet: func(rule json.RawMessage) Total {
		if string(rule) != `"mean"` {
			return nil
		}
		return mean
	}}
}

// verified runs the checks and returns the names of those that found something.
func verified(t testing.TB, cfg Config) (Report, []string) {
	t.Helper()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range r.Findings {
		found = append(found, f.Name)
	}
	return r, found
}

func copyOf(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func loadManifest(t testing.TB, dir string) (m storage.Manifest) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func saveManifest(t testing.TB, dir string, m storage.Manifest) {
	t.Helper()
	text, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// amend changes the manifest.
func amend(change func(m *storage.Manifest)) func(t *testing.T, c *Config) {
	return func(t *testing.T, c *Config) {
		m := loadManifest(t, c.Dir)
		change(&m)
		saveManifest(t, c.Dir, m)
	}
}

// listed is the manifest's entry of a file.
func listed(t testing.TB, m *storage.Manifest, path string) *storage.Part {
	t.Helper()
	lists := [][]storage.Part{m.Parts, m.Failures}
	for _, s := range m.RewardSets {
		lists = append(lists, s.Parts)
	}
	for _, list := range lists {
		for i := range list {
			if list[i].Path == path {
				return &list[i]
			}
		}
	}
	t.Fatalf("the manifest does not list %s", path)
	return nil
}

// resum brings what the manifest says of a file up to what lies there.
func resum(t testing.TB, dir, path string, groups [][]storage.Row) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil {
		t.Fatal(err)
	}
	m := loadManifest(t, dir)
	p := listed(t, &m, path)
	sum := sha256.Sum256(text)
	p.Bytes, p.SHA256 = int64(len(text)), hex.EncodeToString(sum[:])
	if groups != nil {
		fresh := storage.Part{Path: p.Path, SchemaVersion: p.SchemaVersion, Bytes: p.Bytes, RawBytes: p.RawBytes, SHA256: p.SHA256, Published: p.Published, RowGroups: len(groups)}
		for _, g := range groups {
			for _, r := range g {
				noteID(&fresh, r.EpisodeID)
			}
		}
		*p = fresh
	}
	m.Rows, m.FailureRows = rowsOf(m.Parts), rowsOf(m.Failures)
	saveManifest(t, dir, m)
}

// read returns the rows of a file by row group.
func read(t testing.TB, dir, path string) (groups [][]storage.Row) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	pf, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range pf.RowGroups() {
		rows := make([]storage.Row, g.NumRows())
		in := parquet.NewGenericRowGroupReader[storage.Row](g)
		if n, err := in.Read(rows); n != len(rows) {
			t.Fatal(n, err)
		}
		in.Close()
		groups = append(groups, rows)
	}
	return groups
}

// rewrite puts other rows into a file, as a file of ours has them, and sums it up in the manifest.
func rewrite(t testing.TB, dir, path string, change func(groups [][]storage.Row) [][]storage.Row) {
	t.Helper()
	groups := slices.DeleteFunc(change(read(t, dir, path)), func(g []storage.Row) bool { return len(g) == 0 })
	f, err := os.Create(filepath.Join(dir, path))
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[storage.Row](f)
	for _, g := range groups {
		if _, err = w.Write(g); err == nil {
			err = w.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if groups == nil {
		groups = [][]storage.Row{}
	}
	resum(t, dir, path, groups)
}

// edit changes one row of goodRun.
func edit(task string, sample int32, change func(r *storage.Row)) func(t *testing.T, c *Config) {
	return func(t *testing.T, c *Config) {
		t.Helper()
		file, found := part0, false
		switch {
		case task == "half" && sample == 1:
			file = failed0
		case task == "half" || task == "text":
			file = part1
		}
		rewrite(t, c.Dir, file, func(groups [][]storage.Row) [][]storage.Row {
			for _, g := range groups {
				for i := range g {
					if g[i].TaskID == task && g[i].SampleIndex == sample {
						found = true
						change(&g[i])
					}
				}
			}
			return groups
		})
		if dropSets(t, c); !found {
			t.Fatalf("no row %s/%d in %s", task, sample, file)
		}
	}
}

// dropSets takes the rescored rewards away: their rows are held to those that were changed.
func dropSets(t *testing.T, c *Config) {
	m := loadManifest(t, c.Dir)
	m.RewardSets, m.CurrentRewards = nil, ""
	saveManifest(t, c.Dir, m)
	if err := os.RemoveAll(filepath.Join(c.Dir, "rewards")); err != nil {
		t.Fatal(err)
	}
}

// unsummed is a change that summary.json would show too: it is taken away.
func unsummed(change func(t *testing.T, c *Config)) func(t *testing.T, c *Config) {
	return func(t *testing.T, c *Config) {
		change(t, c)
		if err := os.Remove(filepath.Join(c.Dir, "summary.json")); err != nil {
			t.Fatal(err)
		}
	}
}

// bytesOf changes the bytes of a file and, with sums, what the manifest says of them.
func bytesOf(path string, sums bool, change func(t *testing.T, b []byte) []byte) func(t *testing.T, c *Config) {
	return func(t *testing.T, c *Config) {
		name := filepath.Join(c.Dir, path)
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(name, change(t, b), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if sums {
			resum(t, c.Dir, path, nil)
		}
	}
}

func segmentOf(t testing.TB, dir string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "journal", "segment-*.log"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return "journal/" + filepath.Base(list[0])
}

// firstPage is where the pages of a column of the first row group begin, and where they end.
func firstPage(t *testing.T, b []byte, column string) (from, to int64) {
	t.Helper()
	pf, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pf.Metadata().RowGroups[0].Columns {
		m := c.MetaData
		if m.PathInSchema[0] == column {
			from = m.DataPageOffset
			if m.DictionaryPageOffset > 0 {
				from = min(from, m.DictionaryPageOffset)
			}
			return from, from + m.TotalCompressedSize
		}
	}
	t.Fatalf("no column %s", column)
	return 0, 0
}
