package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"go.uber.org/goleak"

	"tranche/episode"
	"tranche/storage"
	"tranche/storage/arrowrows"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// played is a deterministic episode: rewards, versions, domains and ends of all kinds.
func played(task, sample, samples, tokens int) *episode.Episode {
	rng := rand.New(rand.NewPCG(uint64(task), uint64(sample)))
	content := func(s string) *string { return &s }
	t := &episode.Task{ID: fmt.Sprint("task-", task), DataSource: []string{"math", "code", "web"}[task%3], Split: []string{"train", "test"}[task%2],
		Messages: []episode.Message{{Role: episode.RoleUser, Content: content("question")}}}
	e := episode.New("run", episode.Draw{Task: t, Samples: samples}, sample, episode.Sampling{TokenIDs: true, Logprobs: true}, episode.Budget{}, time.Unix(1e9, 0))
	for turn := range 1 + rng.IntN(2) {
		ids, lps := make([]int32, tokens), make([]episode.Logprob, tokens)
		for i := range ids {
			ids[i], lps[i] = rng.Int32N(1e5), episode.Logprob{Value: -rng.Float32(), Known: i%7 > 0}
		}
		version := episode.Ptr(int32(task/4 + turn))
		if task%9 == 8 {
			version = nil // the server tells none
		}
		e.AddReply(&episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: content("answer")}, Finish: episode.FinishStop,
			PromptIDs: append(slices.Clone(e.Tokens.IDs), 1, 2, 3), SampledIDs: ids, Logprobs: lps, Version: version},
			episode.Turn{PromptTokens: episode.Ptr(int32(3)), CompletionTokens: episode.Ptr(int32(tokens)), Finish: "stop"})
		e.Status, e.Stop = episode.StatusOpen, ""
	}
	e.Close(episode.StatusCompleted, episode.StopStop)
	switch {
	case task%11 == 10 && sample == 0:
		e.Fail(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassTimeout, Cause: errors.New("no answer")})
	case task%7 == 6: // no verdict
	case task%5 == 4: // all the same
		e.Verdict = episode.Verdict{Total: episode.Ptr(0.1)}
	default:
		e.Verdict = episode.Verdict{Total: episode.Ptr(float64(rng.IntN(3)) / 2)}
	}
	return e
}

// aRun writes tasks from one number up to another, each with so many samples, and publishes a part every few tasks.
func aRun(t testing.TB, dir string, from, to, samples, tokens int) {
	t.Helper()
	w, err := storage.Open(storage.Config{Dir: dir, SyncInterval: time.Microsecond, MinPartAge: time.Hour, MaxPartAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for task := from; task < to; task++ {
		for sample := range samples {
			if err := w.Write(context.Background(), played(task, sample, samples, tokens)); err != nil {
				t.Fatal(err)
			}
		}
		if task%10 == 9 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// site is a feed on a loopback address.
type site struct {
	t      testing.TB
	server *Server
	url    string
	client *http.Client
}

func serve(t testing.TB, cfg Config) *site {
	t.Helper()
	if cfg.Poll == 0 {
		cfg.Poll = 10 * time.Millisecond
	}
	server, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(l)
	s := &site{t, server, "http://" + l.Addr().String(), &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(s.close)
	return s
}

func (s *site) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.server.Close(ctx); err != nil {
		s.t.Error(err)
	}
	s.client.CloseIdleConnections()
}

func (s *site) get(path string) *http.Response {
	s.t.Helper()
	resp, err := s.client.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

// said is the text of an answer with its status.
func (s *site) said(method, path string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// streamed is what came of a request for rows.
type streamed struct {
	rows    []*storage.Row
	cursors []string // one a batch
	drops   map[string]string
	end     string
	cursor  string // of the trailer
	columns []string
}

func (s *site) read(path string) streamed {
	s.t.Helper()
	resp := s.get(path)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("GET %s: %s: %s", path, resp.Status, b)
	}
	got, err := readStream(resp.Body)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		s.t.Fatal(err)
	}
	got.end, got.cursor = resp.Trailer.Get("Tranche-End"), resp.Trailer.Get("Tranche-Cursor")
	return got
}

func readStream(r io.Reader) (got streamed, err error) {
	in, err := ipc.NewReader(r)
	if err != nil {
		return got, err
	}
	defer in.Release()
	for _, f := range in.Schema().Fields() {
		got.columns = append(got.columns, f.Name)
	}
	for in.Next() {
		batch := in.RecordBatch()
		rows, err := arrowrows.RowsOf(batch)
		if err != nil {
			return got, err
		}
		meta := batch.(arrow.RecordBatchWithMetadata).Metadata()
		got.drops = map[string]string{}
		for i, k := range meta.Keys() {
			if name, ok := strings.CutPrefix(k, "dropped."); ok {
				got.drops[name] = meta.Values()[i]
			}
		}
		cursor, _ := meta.GetValue("cursor")
		got.rows, got.cursors = append(got.rows, rows...), append(got.cursors, cursor)
	}
	return got, in.Err()
}

func (s streamed) ids() (ids []string) {
	for _, r := range s.rows {
		ids = append(ids, r.EpisodeID)
	}
	return ids
}

// published reads the good rows of a run in the order of their parts.
func published(t testing.TB, dir string) (rows []*storage.Row) {
	t.Helper()
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		if *r.Status != "failed" {
			rows = append(rows, r)
		}
	}
	return rows
}

func sameIDs(t *testing.T, got []string, want []*storage.Row) {
	t.Helper()
	if ids := (streamed{rows: want}).ids(); !slices.Equal(got, ids) {
		t.Errorf("%d rows, want %d:\n%v\n%v", len(got), len(ids), got, ids)
	}
}

func TestAllRowsInTheOrderOfPublication(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 33, 3, 20)
	s := serve(t, Config{Dir: dir, BatchBytes: 5000})
	want := published(t, dir)
	got := s.read("/v1/rows")
	sameIDs(t, got.ids(), want)
	if got.end != endReached || len(got.cursors) < 5 || !slices.Equal(got.columns, arrowrows.ColumnNames()) {
		t.Errorf("end %s, %d batches, %d columns", got.end, len(got.cursors), len(got.columns))
	}
	for i := range got.rows {
		if g, w := asJSON(t, got.rows[i]), asJSON(t, want[i]); g != w {
			t.Errorf("row %d:\n%s\n%s", i, g, w)
		}
	}
	if z := s.read("/v1/rows?zstd=1"); !slices.Equal(z.ids(), got.ids()) {
		t.Error("compressed, other rows come")
	}
	if last := s.read("/v1/rows?cursor=" + got.cursor); len(last.rows) != 0 || last.end != endReached || len(last.columns) == 0 {
		t.Errorf("behind the last row: %d rows, %s", len(last.rows), last.end)
	}
	some := s.read("/v1/rows?columns=token_ids,loss_mask&columns=reward")
	if !slices.Equal(some.columns, []string{"token_ids", "loss_mask", "reward"}) || len(some.rows) != len(want) || len(some.rows[0].TokenIDs) == 0 {
		t.Errorf("columns %v, %d rows", some.columns, len(some.rows))
	}
}

func asJSON(t *testing.T, r *storage.Row) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// From every cursor that came with a batch the rest comes, and nothing else, also from another server. max_rows keeps groups whole.
func TestCursorsGoOn(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 25, 3, 5)
	s := serve(t, Config{Dir: dir, BatchBytes: 3000})
	whole := s.read("/v1/rows").ids()
	for _, most := range []int{1, 4, 7, 1000} {
		var got []string
		cursor := ""
		for range 100 {
			path := fmt.Sprint("/v1/rows?max_rows=", most)
			if cursor != "" {
				path += "&cursor=" + cursor
			}
			part := s.read(path)
			if len(part.rows) == 0 {
				break
			}
			if n := len(part.rows); n > max(most, 3) {
				t.Errorf("max_rows=%d: %d rows", most, n)
			}
			if last := part.rows[len(part.rows)-1]; len(got)+len(part.rows) < len(whole) && last.TaskID != "task-10" && last.TaskID != "task-21" && last.SampleIndex != 2 {
				t.Errorf("max_rows=%d ends within a group: sample %d of %s", most, last.SampleIndex, last.TaskID)
			}
			if part.cursor != part.cursors[len(part.cursors)-1] {
				t.Errorf("the trailer says %s, the last batch %s", part.cursor, part.cursors[len(part.cursors)-1])
			}
			got, cursor = append(got, part.ids()...), part.cursor
		}
		if !slices.Equal(got, whole) {
			t.Errorf("max_rows=%d: %d rows, want %d", most, len(got), len(whole))
		}
	}
	all := s.read("/v1/rows")
	s.close()
	s = serve(t, Config{Dir: dir})
	for i, cursor := range all.cursors {
		rest := s.read("/v1/rows?cursor=" + cursor)
		if n := len(rest.rows); !slices.Equal(rest.ids(), whole[len(whole)-n:]) || i == len(all.cursors)-1 && n > 0 {
			t.Errorf("behind batch %d: %d rows", i, n)
		}
	}
}

// Consumers go on behind what they acknowledged, each by itself, whatever happens to the server.
func TestConsumersAcknowledge(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 20, 2, 5)
	s := serve(t, Config{Dir: dir, BatchBytes: 2000})
	whole := s.read("/v1/rows").ids()
	first := s.read("/v1/rows?consumer=a&max_rows=10")
	if again := s.read("/v1/rows?consumer=a&max_rows=10"); !slices.Equal(first.ids(), again.ids()) {
		t.Error("what was not acknowledged does not come again")
	}
	if status, said := s.said("POST", "/v1/ack?consumer=a&cursor="+first.cursor); status != 200 || !strings.Contains(said, first.cursor) {
		t.Errorf("ack: %d %s", status, said)
	}
	if status, said := s.said("POST", "/v1/ack?consumer=a&cursor="+first.cursors[0]); status != 200 || !strings.Contains(said, first.cursor) {
		t.Errorf("an ack that goes back: %d %s", status, said)
	}
	s.close()
	s = serve(t, Config{Dir: dir})
	if rest := s.read("/v1/rows?consumer=a"); !slices.Equal(rest.ids(), whole[10:]) {
		t.Errorf("a goes on with %d rows", len(rest.rows))
	}
	if rest := s.read("/v1/rows?consumer=b"); !slices.Equal(rest.ids(), whole) {
		t.Errorf("b begins with %d rows", len(rest.rows))
	}
	if rest := s.read("/v1/rows?consumer=a&cursor=" + first.cursors[0]); len(rest.rows) <= len(whole)-10 {
		t.Error("a cursor is to win over what was acknowledged")
	}
	var stats statistics
	_, said := s.said("GET", "/v1/stats")
	if err := json.Unmarshal([]byte(said), &stats); err != nil {
		t.Fatal(err)
	}
	if p := stats.Consumers["a"]; len(stats.Consumers) != 1 || p.Cursor != first.cursor || p.Behind != stats.Rows-10 || stats.Writing || stats.Sent == 0 {
		t.Errorf("stats: %s", said)
	}
}

// TestFiltersAgainstBruteForce holds what comes, and the counts of what does not, to a plain reading of the rows.
func TestFiltersAgainstBruteForce(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 56, 3, 6)
	s := serve(t, Config{Dir: dir})
	all := published(t, dir)
	byGroup := map[string][]float64{}
	for _, r := range all {
		if r.Reward != nil {
			byGroup[r.GroupID] = append(byGroup[r.GroupID], *r.Reward)
		}
	}
	std := func(r *storage.Row) float64 {
		list := byGroup[r.GroupID]
		if len(list) < 2 {
			return -1
		}
		var mean, sum float64
		for _, x := range list {
			mean += x / float64(len(list))
		}
		for _, x := range list {
			sum += (x - mean) * (x - mean)
		}
		if s := math.Sqrt(sum / float64(len(list))); s > 1e-9 {
			return s
		}
		return 0
	}
	oldest := func(r *storage.Row) int {
		least := math.MaxInt
		for i, v := range r.Versions {
			if r.LossMask[i] == 1 {
				least = min(least, int(v))
			}
		}
		return least
	}
	for query, want := range map[string]func(r *storage.Row) bool{
		"domain=math":                       func(r *storage.Row) bool { return r.DataSource == "math" },
		"domain=math&domain=code":           func(r *storage.Row) bool { return r.DataSource != "web" },
		"split=test":                        func(r *storage.Row) bool { return r.Split == "test" },
		"task=task-7":                       func(r *storage.Row) bool { return r.TaskID == "task-7" },
		"useful=1":                          func(r *storage.Row) bool { return std(r) > 0 },
		"min_reward_std=0.3":                func(r *storage.Row) bool { return std(r) >= 0.3 },
		"min_reward_std=0":                  func(r *storage.Row) bool { return std(r) >= 0 },
		"max_staleness=3&version=12":        func(r *storage.Row) bool { return oldest(r) >= 9 && oldest(r) < math.MaxInt },
		"max_staleness=0&version=0":         func(r *storage.Row) bool { return oldest(r) >= 0 },
		"max_staleness=0&version=99":        func(*storage.Row) bool { return false },
		"min_reward=0.5":                    func(r *storage.Row) bool { return r.Reward != nil && *r.Reward >= 0.5 },
		"scored=1&max_reward=0.5":           func(r *storage.Row) bool { return r.Reward != nil && *r.Reward <= 0.5 },
		"status=completed":                  func(*storage.Row) bool { return true },
		"useful=1&domain=web&min_reward=.5": func(r *storage.Row) bool { return std(r) > 0 && r.DataSource == "web" && *r.Reward >= 0.5 },
	} {
		t.Run(query, func(t *testing.T) {
			var rows []*storage.Row
			for _, r := range all {
				if want(r) {
					rows = append(rows, r)
				}
			}
			got := s.read("/v1/rows?" + query)
			sameIDs(t, got.ids(), rows)
			dropped := 0
			for _, n := range got.drops {
				k := 0
				_, _ = fmt.Sscan(n, &k)
				dropped += k
			}
			if len(got.cursors) > 0 && dropped+len(rows) != len(all) {
				t.Errorf("%d came and %d were dropped (%v) of %d", len(rows), dropped, got.drops, len(all))
			}
		})
	}
	stale := s.read("/v1/rows?max_staleness=3&version=12").drops
	n := [2]int{}
	for _, r := range all {
		switch o := oldest(r); {
		case o < 0:
			n[0]++
		case o < 9:
			n[1]++
		}
	}
	if stale["no_version"] != fmt.Sprint(n[0]) || stale["staleness"] != fmt.Sprint(n[1]) || n[0] == 0 || n[1] == 0 {
		t.Errorf("dropped %v, want %d without a version and %d too old", stale, n[0], n[1])
	}
}

// Failures come when they are asked for.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 25, 2, 5)
	s := serve(t, Config{Dir: dir})
	for query, want := range map[string][2]int{"": {48, 0}, "failures=1": {48, 2}, "status=failed": {0, 2}, "status=failed,completed": {48, 2}, "status=truncated": {0, 0}} {
		n := [2]int{}
		for _, r := range s.read("/v1/rows?" + query).rows {
			if *r.Status == "failed" {
				n[1]++
			} else {
				n[0]++
			}
		}
		if n != want {
			t.Errorf("%q: %d good and %d failed rows, want %v", query, n[0], n[1], want)
		}
	}
}

// Failures stand beside the good rows of their group or not, as it came; a condition on the group leaves them out either way.
func TestFailuresVaryInNothing(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 10, 11, 8, 5) // one group: its failure is published with it
	s := serve(t, Config{Dir: dir})
	for query, want := range map[string]int{"failures=1": 8, "failures=1&useful=1": 7, "failures=1&min_reward_std=0": 7, "status=failed": 1, "status=failed&useful=1": 0} {
		if got := s.read("/v1/rows?" + query); len(got.rows) != want {
			t.Errorf("%q: %d rows, want %d", query, len(got.rows), want)
		}
	}
}

// Acknowledgements are no news to the streams: each would look for rows and try the run's lock.
func TestAcknowledgementsWakeNoStream(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 5, 2, 5)
	var asked atomic.Int64
	s := serve(t, Config{Dir: dir, Writing: func() bool { asked.Add(1); return true }})
	cursor := s.read("/v1/rows").cursor
	resp := s.get("/v1/rows?follow=1&cursor=" + cursor)
	defer resp.Body.Close()
	for asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	before, began := asked.Load(), time.Now()
	for range 20 {
		if status, text := s.said("POST", "/v1/ack?consumer=trainer&cursor="+cursor); status != 200 {
			t.Fatalf("ack: %d %s", status, text)
		}
	}
	if n := asked.Load() - before; n > 2+int64(time.Since(began)/writingEvery) {
		t.Errorf("20 acks made a stream ask %d times whether the run is written", n)
	}
}

func TestBadRequests(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 3, 2, 5)
	s := serve(t, Config{Dir: dir})
	for request, want := range map[string]struct {
		status int
		text   string
	}{
		"GET /v1/rows?columns=reward,rewad":               {400, `no column "rewad"; the columns are schema_version, `},
		"GET /v1/rows?max_rows=0":                         {400, "max_rows: expected a whole number from 1 on, found \"0\""},
		"GET /v1/rows?max_rows=many":                      {400, "max_rows"},
		"GET /v1/rows?max_rows=1&max_rows=2":              {400, "max_rows is given 2 times"},
		"GET /v1/rows?wait=soon":                          {400, "wait: expected a time such as 30s, up to 10m0s"},
		"GET /v1/rows?wait=11m":                           {400, "wait"},
		"GET /v1/rows?follow=maybe":                       {400, "follow: expected 1 or 0"},
		"GET /v1/rows?cursor=here":                        {400, "no cursor"},
		"GET /v1/rows?cursor=":                            {400, "no cursor"},
		"GET /v1/rows?cursor=0123456789ab-0":              {410, "begin anew"},
		"GET /v1/rows?consumer=../x":                      {400, "no name of a consumer"},
		"GET /v1/rows?max_staleness=3":                    {400, "max_staleness and version go together"},
		"GET /v1/rows?version=3":                          {400, "max_staleness and version go together"},
		"GET /v1/rows?max_staleness=-1&version=3":         {400, "max_staleness"},
		"GET /v1/rows?min_reward_std=NaN":                 {400, "min_reward_std: expected a number"},
		"GET /v1/rows?min_reward_std=-1":                  {400, "min_reward_std: expected 0 or more"},
		"GET /v1/rows?status=good":                        {400, "completed, truncated"},
		"GET /v1/rows?min_reward=2&max_reward=1":          {400, "reward"},
		"GET /v1/rows?domian=math":                        {400, `no parameter "domian" here; expected consumer, cursor`},
		"GET /v1/rows?a=%zz":                              {400, "invalid URL escape"},
		"POST /v1/ack?consumer=a":                         {400, "cursor"},
		"POST /v1/ack?cursor=0123456789ab-0":              {400, "consumer"},
		"POST /v1/ack?consumer=a&cursor=0123456789ab-0":   {410, "gone"},
		"POST /v1/ack?consumer=a&cursor=x":                {400, "no cursor"},
		"POST /v1/ack?consumer=a&cursor=0123456789ab-0&x": {400, "parameter"},
		"GET /v1/ack?consumer=a&cursor=0123456789ab-0":    {405, ""},
		"POST /v1/rows":                                   {405, ""},
		"HEAD /v1/rows?follow=1&wait=5m":                  {200, ""},
		"GET /v1/stats?x=1":                               {400, "parameter"},
		"GET /v2/rows":                                    {404, ""},
		"GET /":                                           {200, "/v1/rows"},
		"GET /v1/stats":                                   {200, `"rows": 6`},
	} {
		method, path, _ := strings.Cut(request, " ")
		status, text := s.said(method, path)
		if status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s\nwant %d and %q", request, status, text, want.status, want.text)
		}
		if status == 400 && strings.Count(text, "\n") != 1 {
			t.Errorf("%s: not one line: %q", request, text)
		}
	}
	if n := s.server.order.Consumers(); len(n) != 0 {
		t.Errorf("acknowledged all the same: %v", n)
	}
}

func TestTheKeyIsAskedFor(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 3, 2, 5)
	s := serve(t, Config{Dir: dir, Key: "secret"})
	for header, want := range map[string]int{"": 401, "Bearer secre": 401, "Bearer secrets": 401, "secret": 401, "Bearer secret": 200} {
		for _, path := range []string{"/", "/v1/rows", "/v1/stats"} {
			req, _ := http.NewRequest("GET", s.url+path, nil)
			req.Header.Set("Authorization", header)
			resp, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || bytes.Contains(b, []byte("secret")) {
				t.Errorf("%s with %q: %d %s", path, header, resp.StatusCode, b)
			}
		}
	}
	req, _ := http.NewRequest("POST", s.url+"/v1/ack", nil)
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set("Origin", "http://evil.example")
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a web page: %s", resp.Status)
	}
}

// A page that has its own name point to this machine is refused, and so is what a browser says comes from elsewhere.
func TestWebPagesAreRefused(t *testing.T) {
	for _, c := range []struct {
		host, site, key string
		local           bool
		want            int
	}{
		{"127.0.0.1:8700", "", "", true, 404}, {"[::1]:8700", "", "", true, 404}, {"[::1]", "", "", true, 404}, {"LocalHost:8700", "none", "", true, 404},
		{"localhost", "same-origin", "", true, 404}, {"evil.example:8700", "", "", true, 403}, {"127.0.0.1.evil.example", "", "", true, 403},
		{"trainer:8700", "", "", false, 404}, {"tunnel.example", "", "k", true, 404}, {"localhost", "cross-site", "", true, 403}, {"localhost", "same-site", "k", true, 403},
	} {
		s := &Server{cfg: Config{Key: c.key}}
		req := httptest.NewRequest("GET", "/", nil)
		req.Host = c.host
		req.Header.Set("Sec-Fetch-Site", c.site)
		req.Header.Set("Authorization", "Bearer k")
		address := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
		if c.local {
			address.IP = net.IPv4(127, 0, 0, 1)
		}
		w := httptest.NewRecorder()
		s.guard(http.NotFoundHandler()).ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, address)))
		if w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}

// A stream that follows brings what is written, as it is published, and ends with the run. One that waits ends with the first rows, or at its time.
func TestFollowingAndWaiting(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 5, 2, 5)
	var over atomic.Bool
	s := serve(t, Config{Dir: dir, Writing: func() bool { return !over.Load() }})
	end := s.read("/v1/rows").cursor
	began := time.Now()
	if got := s.read("/v1/rows?wait=300ms&cursor=" + end); len(got.rows) != 0 || got.end != endWaited || time.Since(began) < 300*time.Millisecond {
		t.Errorf("waited %v: %d rows, %s", time.Since(began), len(got.rows), got.end)
	}
	var readers sync.WaitGroup
	results := make([]streamed, 3)
	for i, path := range []string{"/v1/rows?follow=1", "/v1/rows?follow=1&cursor=" + end, "/v1/rows?wait=1m&cursor=" + end} {
		readers.Go(func() { results[i] = s.read(path) })
	}
	for s.streams() < 3 {
		time.Sleep(time.Millisecond)
	}
	for i := range 4 {
		aRun(t, dir, 5+3*i, 8+3*i, 2, 5)
	}
	over.Store(true)
	readers.Wait()
	all := published(t, dir)
	sameIDs(t, results[0].ids(), all)
	sameIDs(t, results[1].ids(), all[10:])
	if n := len(results[2].rows); n == 0 || results[0].end != endRun || results[1].end != endRun || results[2].end != endReached {
		t.Errorf("ends %s, %s, %s; %d rows", results[0].end, results[1].end, results[2].end, n)
	}
}

func (s *site) streams() int { return len(s.server.places) }

// Close ends a stream that follows as a stream ends, and End lets it come to the last row first.
func TestStreamsEndProperly(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 5, 2, 5)
	for _, end := range []bool{false, true} {
		s := serve(t, Config{Dir: dir, Writing: func() bool { return true }})
		var got streamed
		var reader sync.WaitGroup
		reader.Go(func() { got = s.read("/v1/rows?follow=1&wait=5m") })
		for s.streams() < 1 {
			time.Sleep(time.Millisecond)
		}
		want := endStopped
		if end {
			want = endRun
			if err := s.server.End(t.Context()); err != nil {
				t.Error(err)
			}
		}
		s.close()
		reader.Wait()
		if got.end != want || len(got.rows) != 10 && end {
			t.Errorf("%d rows, end %q, want %q", len(got.rows), got.end, want)
		}
	}
}

// The last acknowledgement comes after the last stream has ended, on a connection of its own; new streams are refused by then.
func TestEndTakesTheLastAcknowledgement(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 5, 2, 5)
	s := serve(t, Config{Dir: dir, AckWait: time.Minute})
	got := s.read("/v1/rows?consumer=trainer")
	s.client.CloseIdleConnections()
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- s.server.End(t.Context()) }()
	<-s.server.ending
	if status, text := s.said("GET", "/v1/rows?consumer=trainer"); status != 503 {
		t.Errorf("a new stream: %d %s", status, text)
	}
	if status, text := s.said("POST", "/v1/ack?consumer=trainer&cursor="+got.cursor); status != 200 {
		t.Errorf("the last ack: %d %s", status, text)
	}
	s.client.CloseIdleConnections()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the ack did not end the wait: %v", took)
	}
	s.close()

	s = serve(t, Config{Dir: dir, AckWait: time.Millisecond})
	s.read("/v1/rows?consumer=another")
	if err := s.server.End(t.Context()); err != nil {
		t.Error("nobody acknowledges:", err)
	}
}

// A reader that does not read holds its own connection and no other; one that hangs up is noticed.
func TestSlowAndLostReaders(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 6, 4, 20_000)
	s := serve(t, Config{Dir: dir, Streams: 3, Writing: func() bool { return true }})
	s.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4096) // else the system reads it all
		}
		return conn, err
	}}}
	slow := s.get("/v1/rows?follow=1")
	if got := s.read("/v1/rows?columns=episode_id"); len(got.rows) != 24 {
		t.Errorf("beside a slow reader: %d rows", len(got.rows))
	}
	waiting := s.get("/v1/rows?follow=1&columns=reward")
	third := s.get("/v1/rows?follow=1&columns=reward")
	if status, text := s.said("GET", "/v1/rows"); status != 503 || !strings.Contains(text, "3 streams are open") {
		t.Errorf("one more: %d %s", status, text)
	}
	for _, r := range []*http.Response{slow, waiting, third} {
		r.Body.Close()
	}
	for deadline := time.Now().Add(20 * time.Second); s.streams() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams of readers that are gone", s.streams())
		}
	}
}

// A reader that does not read cannot keep a server from closing: its connection is cut.
func TestCloseCutsWhoDoesNotRead(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 6, 4, 20_000)
	server, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(l)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /v1/rows HTTP/1.1\r\nHost: %s\r\n\r\n", l.Addr())
	if _, err := conn.Read(make([]byte, 1)); err != nil { // it writes its first batch, for which there is no room
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := server.Close(ctx); err == nil || !strings.Contains(err.Error(), "streams were cut") {
		t.Errorf("closed with %v", err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil { // what the kernel still holds trickles through so small a buffer
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if bytes.HasSuffix(b, []byte("0\r\n\r\n")) {
		t.Errorf("a cut stream looks whole: %d bytes, %v", len(b), err)
	}
}

// A damaged run is told of; a stream that began is cut, so that nobody takes it for whole.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	aRun(t, dir, 0, 30, 2, 200)
	parts, err := filepath.Glob(filepath.Join(dir, "parts", "*.parquet"))
	if err != nil || len(parts) < 3 {
		t.Fatalf("%v, %v", parts, err)
	}
	s := serve(t, Config{Dir: dir, BatchBytes: 2000})
	cursor := s.read("/v1/rows?max_rows=20").cursor
	if err := os.Truncate(parts[1], 5000); err != nil {
		t.Fatal(err)
	}
	if status, text := s.said("GET", "/v1/rows?cursor="+url.QueryEscape(cursor)); status != 503 || !strings.Contains(text, filepath.Base(parts[1])) {
		t.Errorf("%d %s", status, text)
	}
	resp := s.get("/v1/rows")
	defer resp.Body.Close()
	got, err := readStream(resp.Body)
	if rest, rerr := io.ReadAll(resp.Body); err == nil && rerr == nil {
		t.Errorf("a cut stream looks whole: %d rows, then %d bytes", len(got.rows), len(rest))
	}
	if resp.StatusCode != 200 || len(got.rows) == 0 || len(got.rows) > 20 {
		t.Errorf("%s, %d rows", resp.Status, len(got.rows))
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(Config{}); err == nil {
		t.Error("no directory is one")
	}
	if _, err := Open(Config{Dir: t.TempDir()}); !errors.Is(err, storage.ErrNotRun) {
		t.Errorf("an empty directory: %v", err)
	}
	dir := t.TempDir()
	aRun(t, dir, 0, 1, 1, 1)
	serve(t, Config{Dir: dir})
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("a second feed: %v", err)
	}
	if err := (Config{Dir: "x", Poll: -1, BatchBytes: -1, Streams: -1}).Validate(); strings.Count(fmt.Sprint(err), "feed: ") != 3 {
		t.Errorf("not every fault at once: %v", err)
	}
}

func FuzzQuery(f *testing.F) {
	dir := f.TempDir()
	aRun(f, dir, 0, 1, 1, 1)
	server, err := Open(Config{Dir: dir, Poll: time.Minute})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = server.Close(context.Background()) })
	for _, q := range []string{"", "max_rows=3&wait=1s", "columns=reward,,", "max_staleness=1&version=2&useful=1", "cursor=%00", "status=failed&flag=refused", "min_reward=1e999"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		req := &http.Request{Method: "GET", URL: &url.URL{Path: "/v1/rows", RawQuery: raw}}
		q, err := server.query(req)
		if err == nil && (q.maxRows < 0 || q.wait < 0 || q.wait > maxWait || q.from < 0 || q.from > server.order.Len()) {
			t.Errorf("%q is taken as %+v", raw, q)
		}
		if err != nil && !errors.Is(err, errQuery) && !errors.Is(err, storage.ErrCursor) && !errors.Is(err, storage.ErrCursorGone) && !errors.Is(err, storage.ErrConsumer) {
			t.Errorf("%q: an error of no kind: %v", raw, err)
		}
	})
}
