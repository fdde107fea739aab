package storage

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"tranche/episode"
)

// judged is an episode of three turns with a verdict that uses every column.
func judged() *episode.Episode {
	e := made{run: "r"}.episode(1, 0)
	e.Turns = make([]episode.Turn, 3)
	p := episode.Ptr[float64]
	e.Verdict = episode.Verdict{
		Total: p(0.5), Credit: []float64{0.25, math.NaN(), -1},
		Rewards: []episode.Reward{
			{Name: "tests", Score: p(0.5), Weight: 1, Raw: p(7), Outcome: episode.Scored, Grader: "code/1", Config: "00ff00ff00ff00ff", Evidence: "7 of 14", Tier: "cgroup2",
				Tries: 2, Cost: episode.Cost{PromptTokens: 10, CompletionTokens: 3, CPU: time.Second, Wall: 1500 * time.Millisecond}, Credit: []float64{0.25, math.NaN(), -1}},
			{Name: "tests.runs", Score: p(0), Outcome: episode.Scored, Grader: "code/1"},
			{Name: "judge", Outcome: "no_verdict: judge_unavailable", Grader: "judge/1", Tries: 3, Raw: p(math.Inf(1))},
		},
	}
	return e
}

// What a verdict holds is in the row, goes through journal and file, and comes back.
func TestVerdictColumns(t *testing.T) {
	r := RowOf(judged())
	if r.Scored == nil || !*r.Scored || len(r.TurnCredit) != 3 || r.TurnCredit[1] != nil || *r.TurnCredit[2] != -1 {
		t.Errorf("scored %v, credit %v", r.Scored, r.TurnCredit)
	}
	c := r.Rewards[0]
	if *c.Raw != 7 || *c.Config != "00ff00ff00ff00ff" || *c.Tier != "cgroup2" || *c.Tries != 2 || *c.PromptTokens != 10 || *c.CompletionTokens != 3 ||
		*c.WallMS != 1500 || *c.CPUMS != 1000 {
		t.Errorf("%+v", c)
	}
	if part := r.Rewards[1]; part.Tries != nil || part.WallMS != nil || part.PromptTokens != nil || part.Raw != nil {
		t.Errorf("a part has a cost of its own: %+v", part)
	}
	if len(r.Credits) != 1 || *r.Credits[0].Name != "tests" || r.Credits[0].Credit[1] != nil || *r.Credits[0].Credit[0] != 0.25 {
		t.Errorf("%+v", r.Credits)
	}
	if j := r.Rewards[2]; j.Raw != nil || j.Score != nil || *j.Tries != 3 || j.PromptTokens != nil {
		t.Errorf("%+v", j)
	}
	b, err := appendRow(nil, 1, keyOf(r.EpisodeID), &r)
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeRow(b)
	if err != nil || !reflect.DeepEqual(back.Rewards, r.Rewards) || !reflect.DeepEqual(back.TurnCredit, r.TurnCredit) || !reflect.DeepEqual(back.Credits, r.Credits) || !*back.Scored {
		t.Errorf("from the journal: %v\n%+v", err, back.Rewards)
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := parquet.WriteFile(path, []Row{r}); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.ReadFile[Row](path)
	if err != nil || len(rows) != 1 || !reflect.DeepEqual(rows[0].Rewards, r.Rewards) || !reflect.DeepEqual(rows[0].TurnCredit, r.TurnCredit) || !reflect.DeepEqual(rows[0].Credits, r.Credits) {
		t.Errorf("from the file: %v\n%+v", err, rows)
	}
}

// An episode without a verdict is masked, also one that failed; null is kept for rows that did not have the column.
func TestScoredIsTheMask(t *testing.T) {
	none := made{run: "r"}.episode(1, 0)
	none.Verdict = episode.Verdict{}
	nan := made{run: "r"}.episode(1, 0)
	nan.Verdict.Total = episode.Ptr(math.NaN())
	zero := made{run: "r"}.episode(1, 0)
	zero.Verdict.Total = episode.Ptr(0.0)
	for name, c := range map[string]struct {
		e    *episode.Episode
		want bool
	}{"no verdict": {none, false}, "not a number": {nan, false}, "zero": {zero, true}} {
		if r := RowOf(c.e); r.Scored == nil || *r.Scored != c.want || *r.Scored != (r.Reward != nil) {
			t.Errorf("%s: scored %v, reward %v", name, r.Scored, r.Reward)
		}
	}
}

// earlier is what a row held of a verdict before there were more columns.
type earlier struct {
	EpisodeID string          `parquet:"episode_id"`
	Reward    *float64        `parquet:"reward,optional"`
	Rewards   []earlierReward `parquet:"rewards,optional,list"`
}

type earlierReward struct {
	Name     *string  `parquet:"name,optional"`
	Score    *float64 `parquet:"score,optional"`
	Weight   float64  `parquet:"weight"`
	Outcome  *string  `parquet:"outcome,optional"`
	Grader   *string  `parquet:"grader,optional"`
	Evidence *string  `parquet:"evidence,optional"`
}

// Files and journals of before the columns are read: what they did not have is null, what they had is as it was.
func TestRowsOfBeforeTheVerdictColumns(t *testing.T) {
	p := episode.Ptr[float64]
	s := episode.Ptr[string]
	path := filepath.Join(t.TempDir(), "old.parquet")
	old := []earlier{
		{"a", p(1), []earlierReward{{s("x"), p(1), 2, s("scored"), s("exact/1"), s("yes")}, {s("y"), nil, 0, s("no_verdict: z"), s("exact/1"), nil}}},
		{"b", nil, nil}, {"c", nil, []earlierReward{}},
	}
	if err := parquet.WriteFile(path, old); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		t.Fatal(err)
	}
	var rows []Row
	if err := eachRow(pf, func(r *Row) error { rows = append(rows, *r); return nil }); err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	a := rows[0].Rewards
	if len(a) != 2 || *a[0].Name != "x" || *a[0].Score != 1 || a[0].Weight != 2 || *a[1].Name != "y" || a[1].Score != nil || *rows[0].Reward != 1 {
		t.Errorf("%+v", a)
	}
	for _, c := range a {
		if c.Raw != nil || c.Config != nil || c.Tries != nil || c.WallMS != nil || c.PromptTokens != nil {
			t.Errorf("%+v", c)
		}
	}
	if rows[0].Scored != nil || rows[0].TurnCredit != nil || rows[0].Credits != nil || rows[1].Rewards != nil || rows[2].Rewards == nil || len(rows[2].Rewards) != 0 {
		t.Errorf("%+v", rows)
	}
	var row Row
	text := `{"episode_id":"a","reward":1,"rewards":[{"name":"x","score":1,"weight":2,"outcome":"scored","grader":"exact/1","evidence":"yes"}]}`
	if err := json.Unmarshal([]byte(text), &row); err != nil || row.Scored != nil || len(row.Rewards) != 1 || row.Rewards[0].Tries != nil {
		t.Errorf("%v: %+v", err, row)
	}
}
