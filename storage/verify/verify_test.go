package verify

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"tranche/episode"
	"tranche/storage"
)

const (
	part0   = "parts/part-00000.parquet"
	part1   = "parts/part-00001.parquet"
	failed0 = "failures/part-00000.parquet"
	again0  = "rewards/again/part-00000.parquet"
	noEpis  = "00000000000000000000000000000000"
)

// mutation is a change of a good run that one check finds, and no other.
type mutation struct {
	check, name string
	do          func(t *testing.T, c *Config)
}

func mutations() []mutation {
	return slices.Concat(fileMutations(), keyMutations(), tokenMutations(), talkMutations(), otherMutations())
}

func fileMutations() []mutation {
	return []mutation{
		{"manifest", "sum of rows", amend(func(m *storage.Manifest) { m.Rows++ })},
		{"manifest", "sum of failures", amend(func(m *storage.Manifest) { m.FailureRows-- })},
		{"manifest", "next number", amend(func(m *storage.Manifest) { m.NextPart = 1 })},
		{"manifest", "current rewards that there are not", amend(func(m *storage.Manifest) { m.CurrentRewards = "other" })},
		{"manifest", "a path that leads out", amend(func(m *storage.Manifest) {
			m.RewardSets, m.CurrentRewards = nil, ""
			m.Parts = append(m.Parts, storage.Part{Path: "../parts/part-00000.parquet"})
		})},
		{"manifest", "no JSON", bytesOf("manifest.json", false, func(_ *testing.T, b []byte) []byte { return b[:len(b)/2] })},
		{"manifest", "another version", amend(func(m *storage.Manifest) { m.SchemaVersion = 9 })},
		{"file-missing", "a part", func(t *testing.T, c *Config) { remove(t, c, part1) }},
		{"file-missing", "of a reward set", func(t *testing.T, c *Config) { remove(t, c, again0) }},
		{"file-bytes", "one more", bytesOf(part0, false, func(_ *testing.T, b []byte) []byte { return append(b, 0) })},
		{"file-bytes", "cut", bytesOf(failed0, false, func(_ *testing.T, b []byte) []byte { return b[:100] })},
		{"file-sha256", "another sum", amend(func(m *storage.Manifest) { m.Parts[1].SHA256 = strings.Repeat("0", 64) })},
		{"file-footer", "no Parquet", bytesOf(part0, true, func(_ *testing.T, b []byte) []byte { return append(b[:len(b)-4:len(b)-4], "XXXX"...) })},
		{"file-footer", "nothing", bytesOf(part0, true, func(*testing.T, []byte) []byte { return []byte{} })},
		{"file-schema", "columns are missing", bytesOf(part0, true, lean)},
		{"file-rows", "row groups", amend(func(m *storage.Manifest) { m.Parts[0].RowGroups++ })},
		{"file-pages", "a changed byte", bytesOf(part0, true, func(t *testing.T, b []byte) []byte {
			_, to := firstPage(t, b, "token_ids")
			b[to-1] ^= 0x40
			return b
		})},
		{"file-decode", "a page header", bytesOf(part0, true, func(t *testing.T, b []byte) []byte {
			from, _ := firstPage(t, b, "group_size")
			for i := range int64(8) {
				b[from+i] = 0xff
			}
			return b
		})},
		{"file-ids", "the least", amend(func(m *storage.Manifest) { m.Parts[0].MinEpisode = noEpis })},
		{"file-ids", "the last", amend(func(m *storage.Manifest) { m.Failures[0].LastEpisode = noEpis })},
		{"file-unlisted", "a copy", func(t *testing.T, c *Config) { copyFile(t, c, part0, "parts/part-00099.parquet") }},
		{"file-unlisted", "in a reward set", func(t *testing.T, c *Config) { copyFile(t, c, again0, "rewards/again/part-00099.parquet") }},
		{"journal", "a changed byte", changedJournal(func(b []byte) { b[16+9+40] ^= 1 })},
		{"journal-rows", "another key", changedJournal(func(b []byte) { b[16+9+8] ^= 1; resumFrame(b[16:]) })},
		{"journal-rows", "no JSON", changedJournal(func(b []byte) { b[16+9+28] = '!'; resumFrame(b[16:]) })},
		{"journal-turns", "a changed byte", func(t *testing.T, c *Config) {
			b, err := os.ReadFile(filepath.Join(c.Dir, segmentOf(t, c.Dir))) // whole records, of what kind does not count
			if err != nil {
				t.Fatal(err)
			}
			b[16+9+40] ^= 1
			overwrite(t, c, "journal/turns-00000000.log", string(b))
		}},
		{"records", "an account", func(t *testing.T, c *Config) { overwrite(t, c, "account.json", "{") }},
		{"records", "an endpoint", func(t *testing.T, c *Config) { overwrite(t, c, "endpoints/host.json", "{} {}") }},
		{"records", "from outside", func(_ *testing.T, c *Config) { c.Broken = []Broken{{"records", Place{File: "run.yaml", What: "x"}}} }},
	}
}

func keyMutations() []mutation {
	return []mutation{
		{"key-unique", "twice in a part", rows(part0, func(g [][]storage.Row) [][]storage.Row {
			g[0] = append(g[0], g[0][len(g[0])-1])
			return g
		})},
		{"key-unique", "in two parts", func(t *testing.T, c *Config) {
			first := read(t, c.Dir, part0)[0][0]
			rows(part1, func(g [][]storage.Row) [][]storage.Row { return append(g, []storage.Row{first}) })(t, c)
		}},
		{"key-unique", "in a part and in failures", func(t *testing.T, c *Config) {
			lost := read(t, c.Dir, failed0)[0][0]
			lost.EpisodeID = read(t, c.Dir, part0)[0][0].EpisodeID
			lost.SampleIndex, lost.TaskID, lost.TaskHash, lost.GroupID = 0, read(t, c.Dir, part0)[0][0].TaskID, read(t, c.Dir, part0)[0][0].TaskHash, read(t, c.Dir, part0)[0][0].GroupID
			rows(failed0, func(g [][]storage.Row) [][]storage.Row { return append(g, []storage.Row{lost}) })(t, c)
		}},
		{"key-unique", "in a part and in the journal", func(t *testing.T, c *Config) {
			moved := journalRow(t, c.Dir)
			moved.GroupSize = 3
			unsummed(rows(part1, func(g [][]storage.Row) [][]storage.Row { return append(g, []storage.Row{moved}) }))(t, c)
			c.Allow = []string{"group-whole"}
		}},
		{"key-derived", "an episode", edit("tools", 1, func(r *storage.Row) { r.EpisodeID = noEpis })},
		{"key-run", "rows of another run", rows(part0, func(g [][]storage.Row) [][]storage.Row {
			for i := range g[0] {
				r := &g[0][i]
				r.RunID = "other"
				r.GroupID = episode.GroupID(r.RunID, r.TaskID, int(r.Round))
				r.EpisodeID = episode.ID(r.GroupID, fmt.Sprint(r.SampleIndex))
			}
			return g
		})},
		{"folder", "a failure among the good", func(t *testing.T, c *Config) {
			var lost []storage.Row
			rows(failed0, func(g [][]storage.Row) [][]storage.Row { lost = g[0]; return nil })(t, c)
			rows(part1, func(g [][]storage.Row) [][]storage.Row {
				last := len(g) - 1
				i := slices.IndexFunc(g[last], func(r storage.Row) bool { return r.TaskID == lost[0].TaskID })
				g[last] = slices.Insert(g[last], i+1, lost...)
				return g
			})(t, c)
		}},
		{"group-whole", "a sample is missing", unsummed(rows(part0, func(g [][]storage.Row) [][]storage.Row { return [][]storage.Row{g[0][1:]} }))},
		{"group-together", "two row groups", rows(part0, func(g [][]storage.Row) [][]storage.Row { return [][]storage.Row{g[0][:1], g[0][1:]} })},
		{"group-together", "another group between", rows(part0, func(g [][]storage.Row) [][]storage.Row {
			g[0][1], g[0][2] = g[0][2], g[0][1]
			return g
		})},
		{"group-together", "not in the order of samples", rows(part0, func(g [][]storage.Row) [][]storage.Row {
			g[0][0], g[0][1] = g[0][1], g[0][0]
			return g
		})},
		{"group-size", "two sizes", edit("tools", 1, func(r *storage.Row) { r.GroupSize = 3 })},
		{"task-hash", "two hashes", edit("tools", 1, func(r *storage.Row) { r.TaskHash = "other" })},
		{"reward-set", "another text", func(t *testing.T, c *Config) {
			rewrite(t, c.Dir, again0, func(g [][]storage.Row) [][]storage.Row {
				g[0][0].Messages[0].Content = episode.Ptr("other")
				return g
			})
		}},
		{"reward-set", "a row less", func(t *testing.T, c *Config) {
			rewrite(t, c.Dir, again0, func(g [][]storage.Row) [][]storage.Row { return [][]storage.Row{g[0][:len(g[0])-1]} })
		}},
		{"reward-set", "of no part", func(t *testing.T, c *Config) {
			copyFile(t, c, again0, "rewards/again/part-00007.parquet")
			amend(func(m *storage.Manifest) {
				p := m.RewardSets[0].Parts[0]
				p.Path = "rewards/again/part-00007.parquet"
				m.RewardSets[0].Parts = append(m.RewardSets[0].Parts, p)
			})(t, c)
		}},
		{"draws", "another size", func(_ *testing.T, c *Config) {
			c.Ended = map[storage.Key]int32{storage.KeyOf(episode.GroupID(madeRun, "tools", 0)): 1}
		}},
	}
}

func tokenMutations() []mutation {
	lp := episode.Ptr[float32]
	return []mutation{
		{"token-lengths", "a mask less", edit("tools", 0, func(r *storage.Row) { r.LossMask = r.LossMask[:len(r.LossMask)-1] })},
		{"token-lengths", "in a break", edit("broken", 0, func(r *storage.Row) { r.Breaks[0].Versions = nil })},
		{"token-ids", "below 0", edit("tools", 0, func(r *storage.Row) { r.TokenIDs[1] = -5 })},
		{"token-ids", "in a break", edit("broken", 0, func(r *storage.Row) { r.Breaks[0].TokenIDs[1] = -5 })},
		{"loss-mask", "2", edit("tools", 0, func(r *storage.Row) { r.LossMask[len(r.LossMask)-1] = 2 })},
		{"loss-mask", "in a break", edit("broken", 0, func(r *storage.Row) { r.Breaks[0].LossMask[0] = -1 })},
		{"logprob-mask", "on a prompt", edit("tools", 0, func(r *storage.Row) { r.Logprobs[0] = lp(-1) })},
		{"logprob-mask", "in a break", edit("broken", 0, func(r *storage.Row) { r.Breaks[0].LossMask[1] = 0 })},
		{"logprob-null", "without a flag", edit("tools", 0, func(r *storage.Row) { r.Logprobs[len(r.Logprobs)-1] = nil })},
		{"logprob-null", "all, and they were asked for", edit("tools", 0, func(r *storage.Row) { clear(r.Logprobs) })},
		{"logprob-range", "above 0", edit("tools", 0, func(r *storage.Row) { r.Logprobs[len(r.Logprobs)-1] = lp(0.5) })},
		{"logprob-range", "in a break", edit("broken", 0, func(r *storage.Row) { r.Breaks[0].Logprobs[0] = lp(0.5) })},
		{"prompt-len", "one more", edit("tools", 0, func(r *storage.Row) { r.PromptLen++ })},
		{"prompt-len", "nothing sampled", func(t *testing.T, c *Config) {
			edit("half", 1, func(r *storage.Row) { r.PromptLen = 1 })(t, c)
		}},
		{"versions", "outside of the turn", edit("tools", 0, func(r *storage.Row) { r.Versions[len(r.Versions)-1] = 99 })},
		{"versions", "falling", edit("tools", 0, func(r *storage.Row) {
			n := len(r.Versions)
			r.Turns[1].VersionStart, r.Turns[1].VersionEnd = episode.Ptr[int32](1), episode.Ptr[int32](3)
			r.Versions[n-2], r.Versions[n-1] = 3, 2
		})},
		{"versions", "on a prompt", edit("tools", 0, func(r *storage.Row) { r.Versions[0] = 1 })},
		{"versions", "start after end", edit("half", 0, func(r *storage.Row) {
			r.Turns[0].VersionStart, r.Turns[0].VersionEnd = episode.Ptr[int32](2), episode.Ptr[int32](1)
			for i := range r.Versions {
				r.Versions[i] = episode.UnknownVersion
			}
		})},
		{"prefix", "a break that is not said", edit("broken", 0, func(r *storage.Row) { r.PrefixBreak = nil })},
		{"prefix", "another place", edit("broken", 0, func(r *storage.Row) { *r.PrefixBreak = 2 })},
		{"prefix", "a break that is none", edit("broken", 0, func(r *storage.Row) { r.Breaks[0].TokenIDs[0] = r.TokenIDs[r.Breaks[0].At] })},
		{"prefix", "a break of no turn", edit("broken", 0, func(r *storage.Row) { r.Breaks[0].Turn = 7 })},
		{"prefix", "behind the end", edit("broken", 0, func(r *storage.Row) { r.Breaks[0].At, *r.PrefixBreak = 77, 77 })},
		{"prefix", "an answer too many", edit("tools", 0, func(r *storage.Row) {
			r.LossMask[1], r.Logprobs[1], r.PromptLen = 1, lp(-1), 1
		})},
		{"turn-tokens", "answers", edit("tools", 0, func(r *storage.Row) { *r.Turns[0].CompletionTokens++; *r.Turns[1].CompletionTokens-- })},
		{"turn-tokens", "prompts", edit("broken", 0, func(r *storage.Row) { *r.Turns[0].PromptTokens++; *r.Turns[1].PromptTokens-- })},
	}
}

func talkMutations() []mutation {
	return []mutation{
		{"prompt-messages", "more than there are", edit("tools", 0, func(r *storage.Row) { r.NumPromptMessages = 99 })},
		{"roles", "an answer of the user", edit("tools", 0, func(r *storage.Row) { *r.Messages[2].Role = "user" })},
		{"roles", "a message too many", edit("tools", 0, func(r *storage.Row) { r.Messages = append(r.Messages, r.Messages[4]) })},
		{"roles", "none", edit("tools", 0, func(r *storage.Row) { r.Messages[1].Role = nil })},
		{"roles", "an observation of the system", edit("tools", 0, func(r *storage.Row) { *r.Messages[3].Role = "system" })},
		{"turns", "one more", unsummed(edit("tools", 0, func(r *storage.Row) { r.NumTurns++ }))},
		{"actions", "another tool", edit("tools", 0, func(r *storage.Row) { *r.Actions[0].Name = "bash" })},
		{"actions", "another call", edit("text", 0, func(r *storage.Row) { r.Forms[0].CallID = episode.Ptr("text_9") })},
		{"actions", "of a turn that there is not", edit("tools", 0, func(r *storage.Row) { r.Actions[0].Turn = 5 })},
		{"actions", "of the wrong turn", edit("text", 0, func(r *storage.Row) {
			r.Actions[0].Turn = 1
			r.Messages[3], r.Messages[4] = r.Messages[4], r.Messages[3]
		})},
		{"tool-messages", "another call", edit("tools", 0, func(r *storage.Row) { *r.Messages[3].ToolCallID = "c9" })},
		{"forms", "one message twice", edit("text", 0, func(r *storage.Row) { r.Forms = append(r.Forms, r.Forms[0]) })},
		{"forms", "of the prompt", edit("text", 0, func(r *storage.Row) { r.Forms = append(r.Forms, storage.Form{Message: 1}) })},
		{"raw", "more bytes than it says", edit("tools", 0, func(r *storage.Row) { r.Raw[0].Bytes = 1 })},
		{"raw", "of no turn", edit("tools", 0, func(r *storage.Row) { r.Raw[0].Turn = 2 })},
		{"status", "another stop reason", unsummed(edit("tools", 0, func(r *storage.Row) { *r.StopReason = "length" }))},
		{"status", "none that there is", unsummed(edit("tools", 0, func(r *storage.Row) { *r.Status = "open" }))},
		{"status", "a fault of a good row", edit("tools", 0, func(r *storage.Row) { r.FaultStage = episode.Ptr("model") })},
		{"status", "a failure without a fault", unsummed(edit("half", 1, func(r *storage.Row) { r.FaultClass = nil }))},
	}
}

func otherMutations() []mutation {
	return []mutation{
		{"utf8", "a message", edit("tools", 0, func(r *storage.Row) { *r.Messages[0].Content = "\xff" })},
		{"utf8", "deep", edit("tools", 0, func(r *storage.Row) { r.Messages[2].ToolCalls[0].Function.Arguments = "\xed\xa0\xbd" })},
		{"json", "extra_info", edit("tools", 0, func(r *storage.Row) { *r.ExtraInfo = "{" })},
		{"json", "tools", edit("tools", 0, func(r *storage.Row) { *r.Tools = "{}" })},
		{"flags", "order", unsummed(edit("tools", 0, func(r *storage.Row) { r.Flags = []string{"b", "a"} }))},
		{"flags", "of usage", unsummed(edit("tools", 0, func(r *storage.Row) { r.Flags = []string{episode.FlagUsageMissing} }))},
		{"scored", "the contrary", edit("tools", 0, func(r *storage.Row) { *r.Scored = false })},
		{"components", "a score above 1", unsummed(edit("tools", 0, func(r *storage.Row) { *r.Rewards[0].Score, *r.Reward = 2, 2 }))},
		{"components", "outcome", edit("tools", 0, func(r *storage.Row) { *r.Rewards[0].Outcome = "no_verdict: x" })},
		{"components", "weight", edit("tools", 0, func(r *storage.Row) { r.Rewards[0].Weight = -1 })},
		{"reward", "another", unsummed(edit("tools", 0, func(r *storage.Row) { *r.Reward = 0.25 }))},
		{"reward", "of a rescored set", func(t *testing.T, c *Config) {
			rewrite(t, c.Dir, again0, func(g [][]storage.Row) [][]storage.Row {
				*g[0][0].Reward = 0.25
				return g
			})
		}},
		{"reward", "none", unsummed(edit("tools", 0, func(r *storage.Row) { r.Reward = nil; *r.Scored = false }))},
		{"credit", "a turn less", edit("tools", 0, func(r *storage.Row) { r.TurnCredit = r.TurnCredit[:1] })},
		{"credit", "of a component", edit("tools", 0, func(r *storage.Row) { r.Credits[0].Credit = r.Credits[0].Credit[:1] })},
		{"token-sums", "in", unsummed(edit("tools", 0, func(r *storage.Row) { *r.NumInputTokens++ }))},
		{"token-sums", "out", unsummed(edit("tools", 0, func(r *storage.Row) { r.NumOutputTokens = nil }))},
		{"timing", "below 0", unsummed(edit("tools", 0, func(r *storage.Row) { r.Timing.Score = -1 }))},
		{"timing", "more than the whole", unsummed(edit("tools", 0, func(r *storage.Row) { r.Timing.Score = 100 }))},
		{"timing", "not the sum", unsummed(edit("tools", 0, func(r *storage.Row) { r.Timing.Model = 1.5 }))},
		{"timing", "an action", edit("tools", 0, func(r *storage.Row) { *r.Actions[0].WallMS = -3 })},
		{"created", "the future", edit("tools", 0, func(r *storage.Row) { r.CreatedAt = time.Now().Add(1000 * time.Hour) })},
		{"created", "an attempt", edit("half", 1, func(r *storage.Row) { r.FaultAttempts[0].Ended = episode.Ptr(r.FaultAttempts[0].Began.Add(-time.Hour)) })},
		{"branches", "behind the last", edit("tools", 0, func(r *storage.Row) { r.BranchIndex = 5 })},
		{"branches", "another version", edit("tools", 0, func(r *storage.Row) { r.SchemaVersion = 2 })},
		{"summary", "a count", summaryWith(func(d map[string]any) { d["good"] = 99 })},
		{"summary", "a name that no row has", summaryWith(func(d map[string]any) { d["stops"].(map[string]any)["budget"] = 1 })},
		{"summary", "a mean", summaryWith(func(d map[string]any) { d["reward"].(map[string]any)["mean"] = 0.75 })},
	}
}

func remove(t *testing.T, c *Config, path string) {
	t.Helper()
	if err := os.Remove(filepath.Join(c.Dir, path)); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, c *Config, path, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.Dir, path), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, c *Config, from, to string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.Dir, from))
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, c, to, string(b))
}

// lean writes a file of the same episodes that lacks almost every column.
func lean(t *testing.T, b []byte) []byte {
	type only struct {
		EpisodeID string `parquet:"episode_id"`
		Extra     int64  `parquet:"extra"`
	}
	name := filepath.Join(t.TempDir(), "x")
	if err := parquet.WriteFile(name, []only{{noEpis, 1}}); err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rows rewrites the row groups of a file.
func rows(path string, change func(g [][]storage.Row) [][]storage.Row) func(t *testing.T, c *Config) {
	return func(t *testing.T, c *Config) {
		t.Helper()
		rewrite(t, c.Dir, path, change)
		dropSets(t, c)
	}
}

func changedJournal(change func(b []byte)) func(t *testing.T, c *Config) {
	return func(t *testing.T, c *Config) {
		bytesOf(segmentOf(t, c.Dir), false, func(_ *testing.T, b []byte) []byte { change(b); return b })(t, c)
	}
}

// resumFrame makes the checksum of the first frame right again.
func resumFrame(b []byte) {
	n := binary.LittleEndian.Uint32(b)
	sum := crc32.Update(0, crc32.MakeTable(crc32.Castagnoli), slices.Concat(b[:4], b[8:9+n]))
	binary.LittleEndian.PutUint32(b[4:], sum)
}

func journalRow(t *testing.T, dir string) (row storage.Row) {
	t.Helper()
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		row = *r // the last ones are those of the journal
	}
	return row
}

func summaryWith(change func(dataset map[string]any)) func(t *testing.T, c *Config) {
	return func(t *testing.T, c *Config) {
		bytesOf("summary.json", false, func(t *testing.T, b []byte) []byte {
			var doc map[string]any
			err := json.Unmarshal(b, &doc)
			if err == nil {
				change(doc["dataset"].(map[string]any))
				b, err = json.Marshal(doc)
			}
			if err != nil {
				t.Fatal(err)
			}
			return b
		})(t, c)
	}
}

// Nothing is found in a good run, and every check was made.
func TestAGoodRunHasNoFindings(t *testing.T) {
	r, found := verified(t, madeConfig(goodRun(t)))
	if len(found) > 0 {
		t.Fatalf("%+v", r.Findings)
	}
	if r.Gravest != nil || r.Rows != 15 || r.Journal != 2 || r.Files != 5 || r.Live {
		t.Errorf("%+v", r)
	}
	for _, u := range r.Unchecked {
		if u.Check != "reward" && u.Rows != 1 { // of the rescored rows; of the failed one without ids
			t.Errorf("not checked: %+v", u)
		}
	}
}

// Each mutation is found by its check alone, and each check has one.
func TestEveryCheckFindsItsMutation(t *testing.T) {
	good := goodRun(t)
	has := map[string]bool{}
	for _, m := range mutations() {
		if testing.Short() && has[m.check] { // one of each will do
			continue
		}
		has[m.check] = true
		t.Run(m.check+"/"+m.name, func(t *testing.T) {
			c := madeConfig(copyOf(t, good))
			m.do(t, &c)
			r, found := verified(t, c)
			found = slices.DeleteFunc(found, func(name string) bool { return slices.Contains(c.Allow, name) })
			if !slices.Equal(found, []string{m.check}) {
				t.Fatalf("found %v: %+v", found, r.Findings)
			}
			i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Name == m.check })
			if f := r.Findings[i]; len(f.Places) == 0 || f.Places[0].What == "" || f.Places[0].File == "" || *r.Gravest != f.Class {
				t.Errorf("%+v", f)
			}
		})
	}
	for _, c := range Checks() {
		if !has[c.Name] {
			t.Errorf("the check %s has no mutation: nothing shows that it can find anything", c.Name)
		}
	}
}

// Names are unique, every check is explained, and classes are in order.
func TestTheCatalogueIsWhole(t *testing.T) {
	seen := map[string]bool{}
	last := Files
	for _, c := range Checks() {
		if seen[c.Name] || c.Means == "" || c.Class < last || c.Class.String() == "unknown" {
			t.Errorf("%+v", c)
		}
		seen[c.Name], last = true, c.Class
	}
}

// What is allowed is told and does not count; places are capped and the count goes on.
func TestAllowAndPlaces(t *testing.T) {
	c := madeConfig(goodRun(t))
	for i := range int32(2) {
		edit("tools", i, func(r *storage.Row) { r.PromptLen, r.BranchIndex = 77, 5 })(t, &c)
	}
	c.Places, c.Allow = 1, []string{"prompt-len"}
	r, found := verified(t, c)
	if !slices.Equal(found, []string{"prompt-len", "branches"}) || *r.Gravest != Sums {
		t.Fatalf("%v %v", found, r.Gravest)
	}
	if f := r.Findings[0]; !f.Allowed || f.Count != 2 || len(f.Places) != 1 {
		t.Errorf("%+v", f)
	}
}

// A choice of rows may lack samples of a group, and says so.
func TestAChoiceOfRowsHasNoFindings(t *testing.T) {
	c := madeConfig(goodRun(t))
	unsummed(rows(part0, func(g [][]storage.Row) [][]storage.Row { return [][]storage.Row{g[0][1:]} }))(t, &c)
	for _, made := range []*storage.Making{{How: "sample", PartialGroups: true}, {How: "merge", PartialGroups: true}} {
		amend(func(m *storage.Manifest) { m.Made = made })(t, &c)
		r, found := verified(t, c)
		if len(found) > 0 || !slices.ContainsFunc(r.Unchecked, func(u Unchecked) bool { return u.Check == "group-whole" }) {
			t.Errorf("%+v: %+v, not checked %+v", made, r.Findings, r.Unchecked)
		}
	}
	amend(func(m *storage.Manifest) { m.Made = &storage.Making{How: "merge"} })(t, &c)
	if _, found := verified(t, c); !slices.Equal(found, []string{"group-whole"}) {
		t.Errorf("all rows of a merge: %v", found)
	}
}

// A quick look finds what the manifest and the footers tell, and reads no row.
func TestQuick(t *testing.T) {
	c := madeConfig(goodRun(t))
	c.Quick = true
	if r, found := verified(t, c); len(found) > 0 || r.Rows != 0 || r.Files != 5 {
		t.Fatalf("%v %+v", found, r)
	}
	edit("tools", 0, func(r *storage.Row) { r.LossMask = r.LossMask[1:] })(t, &c)
	bytesOf(failed0, false, func(_ *testing.T, b []byte) []byte { return b[:10] })(t, &c)
	if _, found := verified(t, c); !slices.Equal(found, []string{"file-bytes", "token-lengths"}) {
		t.Errorf("%v", found)
	}
}

// A torn end of the journal, half-made files, files of before some columns and logprobs of -inf are told, and are no fault.
func TestWhatIsNoFault(t *testing.T) {
	c := madeConfig(goodRun(t))
	overwrite(t, &c, ".tmp-x", "half")
	overwrite(t, &c, "journal/segment-00000000.log.damaged", "kept")
	bytesOf(segmentOf(t, c.Dir), false, func(_ *testing.T, b []byte) []byte { return append(b, 200, 0, 0, 0, 1) })(t, &c)
	edit("broken", 0, func(r *storage.Row) { // the server left the ids of a stop string out
		r.Sampling = episode.Ptr(`{"logprobs":true,"stop":["</x>"]}`)
		*r.Turns[0].CompletionTokens++
		*r.NumOutputTokens++
	})(t, &c)
	edit("half", 0, func(r *storage.Row) { // the row says itself that the server's count is another
		r.Flags = []string{episode.FlagTokenCountDiffers}
		*r.Turns[0].CompletionTokens++
		*r.NumOutputTokens++
	})(t, &c)
	if err := os.Remove(filepath.Join(c.Dir, "summary.json")); err != nil {
		t.Fatal(err)
	}
	edit("tools", 0, func(r *storage.Row) {
		inf := float32(1)
		inf /= 0 * inf
		r.Logprobs[len(r.Logprobs)-1] = episode.Ptr(-inf)
	})(t, &c)
	r, found := verified(t, c)
	if len(found) > 0 || len(r.Notes) != 3 {
		t.Fatalf("%v\n%+v", r.Findings, r.Notes)
	}
}

// A sample that failed and was played again lies apart from its siblings, and a failure that the journal has a retry of counts once.
func TestRetriesAreNoFault(t *testing.T) {
	for _, published := range []bool{true, false} {
		t.Run(fmt.Sprintf("published %v", published), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "x")
			cfg := storage.Config{Dir: dir, SyncInterval: time.Microsecond, MinPartAge: time.Hour, MaxPartAge: time.Hour}
			write := func(retry, leave bool, list ...*episode.Episode) {
				cfg.RetryFailed = retry
				w, err := storage.Open(cfg)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range list {
					if err := w.Write(context.Background(), e); err != nil {
						t.Fatal(err)
					}
				}
				if leave { // as a process that is killed
					copied := copyOf(t, dir)
					if err := w.Close(); err != nil {
						t.Fatal(err)
					}
					dir = copied
					return
				}
				if err := errors.Join(w.WriteSummary(nil), w.Close()); err != nil {
					t.Fatal(err)
				}
			}
			write(false, false, withTool(madeEpisode("a", 0, 3), false), failing(madeEpisode("a", 1, 3)), withTool(madeEpisode("a", 2, 3), false))
			again := withTool(madeEpisode("a", 1, 3), false)
			again.Created = time.Now().Add(time.Hour)
			write(true, !published, again)
			if r, found := verified(t, madeConfig(dir)); len(found) > 0 {
				t.Fatalf("%+v", r.Findings)
			}
		})
	}
}

// A run may be verified at any moment while it is written.
func TestALiveRunHasNoFindings(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	w, err := storage.Open(storage.Config{Dir: dir, SyncInterval: time.Microsecond, MinPartAge: time.Millisecond, MaxPartAge: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { // ends with the loop below, which waits for it
		var err error
		for i := 0; i < 60 && err == nil; i++ {
			for s := range 2 {
				err = errors.Join(err, w.Write(context.Background(), withTool(madeEpisode(fmt.Sprint("t", i), s, 2), i%3 == 0)))
			}
		}
		written <- err
	}()
	for looks := 0; ; looks++ {
		select {
		case err := <-written:
			if err = errors.Join(err, w.Close()); err != nil || looks == 0 {
				t.Fatal(looks, err)
			}
			if r, found := verified(t, madeConfig(dir)); len(found) > 0 || r.Rows != 120 {
				t.Fatalf("at the end: %+v", r)
			}
			return
		default:
			if r, found := verified(t, madeConfig(dir)); len(found) > 0 || !r.Live {
				t.Fatalf("look %d: live %v, %+v", looks, r.Live, r.Findings)
			}
		}
	}
}

// A run that is gone on with behind the back of its verification has another summary: that is told, and no finding.
func TestASummaryThatWasWrittenMeanwhile(t *testing.T) {
	dir := goodRun(t)
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := run.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		generation int64
		began      time.Time
		found      bool
	}{"published since": {m.Generation - 1, time.Now(), false}, "ended since": {m.Generation, time.Unix(1, 0), false}, "nothing since": {m.Generation, time.Now(), true}} {
		v, err := New(madeConfig(dir))
		if err != nil {
			t.Fatal(err)
		}
		v.run, v.generation, v.now = run, c.generation, c.began
		v.sameSummary() // of no rows at all
		_, told := v.misses["summary"+"the run was written meanwhile"]
		if found := v.found["summary"] != nil; found != c.found || told == found {
			t.Errorf("%s: found %v, told %v", name, found, told)
		}
	}
}

// countStopped counts the journal of a run with a context.
func countStopped(t *testing.T, v *Verifier, ctx context.Context) error {
	t.Helper()
	_, journal, err := v.open()
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	return v.countJournal(ctx, journal)
}

func TestStopsAndRefuses(t *testing.T) {
	dir := goodRun(t)
	v, err := New(madeConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := v.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if err := countStopped(t, v, ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the journal is counted all the same: %v", err)
	}
	if v, err = New(Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Run(context.Background()); !errors.Is(err, storage.ErrNotRun) {
		t.Errorf("no run: %v", err)
	}
	_, err = New(Config{Places: -1, Allow: []string{"nothing"}, Broken: []Broken{{Check: "none"}}})
	for _, want := range []string{"Dir is empty", "Places is -1", `no check "nothing"`, `no check "none"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}

// No row makes a check fail itself, whatever it holds.
func FuzzRowChecks(f *testing.F) {
	for _, e := range []*episode.Episode{withTool(madeEpisode("a", 0, 1), true), written(madeEpisode("b", 0, 1)), failing(madeEpisode("c", 0, 1))} {
		r := storage.RowOf(e)
		text, err := json.Marshal(&r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := new(storage.Row)
		if json.Unmarshal(text, r) != nil {
			return
		}
		v, err := New(madeConfig("x"))
		if err != nil {
			t.Fatal(err)
		}
		for where := inParts; where <= inSet; where++ {
			v.look(&row{Row: r, home: where}, Place{})
			v.look(&row{Row: r, home: where, total: mean, older: []string{"forms", "breaks", "scored"}}, Place{})
		}
	})
}
