package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"tranche/sampler"
	"tranche/storage"
)

type diffCmd struct {
	A           string `arg:"" help:"Run directory."`
	B           string `arg:"" help:"Run directory that is held against it."`
	Top         int    `default:"10" placeholder:"N" help:"Tasks with the largest change to list, or with --exact differences. Default: ${default}."`
	FailOnWorse bool   `xor:"how" help:"End with 30 where the whole interval of the reward's difference is below 0: B is worse."`
	Exact       bool   `xor:"how" help:"Compare row by row, every field but those that tell how it went that time (docs/format.md, Order); end with 31 where they differ."`
	JSON        bool   `name:"json" help:"Print one JSON document."`
}

// Help is kong's long text of the command.
func (diffCmd) Help() string {
	return "What is told of B is its difference from A. Tasks are matched by their ids, each is held against itself and all count alike; intervals are 95 %, Student's t over the tasks in both runs, none with fewer than 8. Where the two sent the same seeds, samples are matched too. Rewards are of rows with a verdict; lengths, turns and tools of rows that ended well. Holds some 100 bytes a row and 300 a task of A in memory."
}

func (c *diffCmd) do(ctx context.Context, a *app) error {
	if c.Top < 0 {
		return withCode(codeUsage, fmt.Errorf("--top: expected 0 or more, found %d", c.Top))
	}
	return whileWaiting(ctx, a, func(ctx context.Context) error {
		if c.Exact {
			return c.exact(ctx, a)
		}
		return c.compare(ctx, a)
	})
}

func (c *diffCmd) compare(ctx context.Context, a *app) error {
	d := newDifference(c.A, c.B)
	if err := d.compareSettings(); err != nil {
		return err
	}
	for i, dir := range []string{c.A, c.B} {
		if err := eachFact(ctx, a, dir, func(f *storage.Facts) { d.add(i, f) }); err != nil {
			return err // half of a run is no run to compare with
		}
	}
	d.finish(c.Top)
	var err error
	if c.JSON {
		err = a.printJSON(d)
	} else {
		err = a.print(d.text(a.colour, a.program))
	}
	switch {
	case err != nil || !c.FailOnWorse:
		return err
	case d.Worse:
		return outcome(codeWorse)
	case d.Reward == nil || d.Reward.Difference.Low == nil:
		a.notice("--fail-on-worse: fewer than 8 tasks have a reward in both runs: too few to tell")
	}
	return nil
}

// difference is what `tranche diff` tells.
type difference struct {
	A        diffSide        `json:"a"`
	B        diffSide        `json:"b"`
	Settings []settingChange `json:"settings"` // that differ
	Notes    []string        `json:"notes,omitempty"`

	Tasks   diffTasks       `json:"tasks"`
	Reward  *sampler.Paired `json:"reward"` // null where no task has a verdict in both
	Worse   bool            `json:"worse"`  // the whole interval is below 0
	ByTask  wins            `json:"by_task"`
	Samples *wins           `json:"by_sample,omitempty"` // absent where the two sent no equal seeds

	Components map[string]*sampler.Paired `json:"components"`
	Measures   []measure                  `json:"measures"`
	Tools      []toolDifference           `json:"tools"`
	Counts     []countDifference          `json:"counts"`
	Top        []taskChange               `json:"top"`

	sides   [2]*diffSums
	samples map[uint64]seeded // of A
	pairs   wins
}

// diffSide is one run.
type diffSide struct {
	Dir     string       `json:"run"`
	RunID   string       `json:"run_id"`
	Rows    int64        `json:"rows"`
	Failed  int64        `json:"failed"`
	Scored  storage.Mean `json:"reward"` // over rows
	Rewards string       `json:"reward_set,omitempty"`
}

type settingChange struct {
	Key    string `json:"key"`
	A      string `json:"a"`
	B      string `json:"b"`
	Result bool   `json:"changes_results"`
}

type diffTasks struct {
	Both  int      `json:"both"`
	OnlyA int      `json:"only_a"`
	OnlyB int      `json:"only_b"`
	Other int      `json:"other_content"` // the same id and another content hash
	IDs   []string `json:"other_content_ids,omitempty"`
}

// wins counts what is held against itself by which of the two has the higher reward.
type wins struct {
	Pairs int64 `json:"pairs"`
	Wins  int64 `json:"b_higher"`
	Ties  int64 `json:"equal"`
	Loses int64 `json:"b_lower"`
}

func (w *wins) add(a, b float64) {
	w.Pairs++
	switch {
	case b > a:
		w.Wins++
	case b < a:
		w.Loses++
	default:
		w.Ties++
	}
}

// measure is a number of an episode.
type measure struct {
	Name string          `json:"name"`
	Pair *sampler.Paired `json:"paired"`
}

type toolDifference struct {
	Name    string          `json:"name"`
	Calls   [2]int64        `json:"calls"`
	NotOK   [2]int64        `json:"not_ok"`
	Episode *sampler.Paired `json:"calls_an_episode"`
}

// countDifference is how often something was in each run.
type countDifference struct {
	Kind  string   `json:"kind"` // status, stop_reason, fault, flag
	Name  string   `json:"name"`
	Count [2]int64 `json:"rows"`
}

// taskChange is a task whose reward changed.
type taskChange struct {
	TaskID     string  `json:"task_id"`
	A          float64 `json:"a"` // mean of its rewards
	B          float64 `json:"b"`
	Difference float64 `json:"difference"`
	EpisodeA   string  `json:"episode_a"` // where the two are farthest apart
	EpisodeB   string  `json:"episode_b"`
}

// diffSums is what is kept of one run.
type diffSums struct {
	rewards    sampler.Clusters
	episodes   sampler.Clusters // good ones, 1 each
	components map[string]*sampler.Clusters
	measures   map[string]*sampler.Clusters
	tools      map[string]*toolSums
	counts     map[[2]string]int64 // by kind and name
	tasks      map[uint64]*taskSums
}

type toolSums struct {
	calls, notOK int64
	byTask       sampler.Clusters // calls, without episodes
}

type taskSums struct {
	id        string
	hash      uint64
	n         int64
	sum       float64
	low, high extreme
}

// extreme is the episode with the least or the greatest reward of a task.
type extreme struct {
	episode string
	reward  float64
}

// seeded is a sample that can be matched.
type seeded struct {
	seed   int64
	reward float64
}

func newDifference(a, b string) *difference {
	d := &difference{A: diffSide{Dir: a}, B: diffSide{Dir: b}, Settings: []settingChange{}, Components: map[string]*sampler.Paired{}, samples: map[uint64]seeded{}}
	for i := range d.sides {
		d.sides[i] = &diffSums{components: map[string]*sampler.Clusters{}, measures: map[string]*sampler.Clusters{}, tools: map[string]*toolSums{},
			counts: map[[2]string]int64{}, tasks: map[uint64]*taskSums{}}
	}
	return d
}

func (d *difference) side(i int) *diffSide {
	if i == 0 {
		return &d.A
	}
	return &d.B
}

func (d *difference) add(i int, f *storage.Facts) {
	side, s := d.side(i), d.sides[i]
	side.Rows++
	side.RunID = cmp.Or(side.RunID, f.RunID)
	side.Scored.Add(f.Reward)
	s.counts[[2]string{"status", or(f.Status, "unknown")}]++
	s.counts[[2]string{"stop_reason", or(f.StopReason, "unknown")}]++
	if f.FaultClass != nil {
		s.counts[[2]string{"fault", or(f.FaultStage, "unknown") + "/" + *f.FaultClass}]++
	}
	for _, flag := range f.Flags {
		s.counts[[2]string{"flag", flag}]++
	}
	s.addReward(f)
	d.match(i, f)
	if f.Failed() {
		side.Failed++
		return
	}
	s.addMeasures(f)
	s.addTools(f)
}

func (s *diffSums) addReward(f *storage.Facts) {
	id := hashOf(f.TaskID)
	t := s.tasks[id]
	if t == nil {
		t = &taskSums{id: f.TaskID, hash: hashOf(f.TaskHash)}
		s.tasks[id] = t
	}
	for _, r := range f.Rewards {
		if r.Score != nil {
			clustersOf(s.components, or(r.Name, "(none)")).Add(f.TaskID, *r.Score, 1)
		}
	}
	if f.Reward == nil {
		return
	}
	s.rewards.Add(f.TaskID, *f.Reward, 1)
	one := extreme{f.EpisodeID, *f.Reward}
	if t.n == 0 || one.reward < t.low.reward {
		t.low = one
	}
	if t.n == 0 || one.reward > t.high.reward {
		t.high = one
	}
	t.n++
	t.sum += *f.Reward
}

func clustersOf(m map[string]*sampler.Clusters, name string) *sampler.Clusters {
	if m[name] == nil {
		m[name] = &sampler.Clusters{}
	}
	return m[name]
}

// measureNames are what is compared of each episode besides its reward, in the order in which it is shown.
func measureNames() []string {
	return []string{"tokens out", "tokens in", "turns", "actions", "wall s"}
}

func (s *diffSums) addMeasures(f *storage.Facts) {
	s.episodes.Add(f.TaskID, 0, 1)
	turns, actions := float64(f.NumTurns), float64(len(f.Actions))
	for i, v := range []*float64{asFloat(f.NumOutputTokens), asFloat(f.NumInputTokens), &turns, &actions, &f.Timing.Total} {
		if v != nil {
			clustersOf(s.measures, measureNames()[i]).Add(f.TaskID, *v, 1)
		}
	}
}

func (s *diffSums) addTools(f *storage.Facts) {
	for _, act := range f.Actions {
		name := or(act.Name, "(none)")
		t := s.tools[name]
		if t == nil {
			t = &toolSums{}
			s.tools[name] = t
		}
		t.calls++
		if or(act.Status, "") != "ok" {
			t.notOK++
		}
		t.byTask.Add(f.TaskID, 1, 0)
	}
}

// match holds samples with the same seed against each other.
func (d *difference) match(i int, f *storage.Facts) {
	if f.Seed == nil || f.Reward == nil {
		return
	}
	id := hashOf(f.TaskID, strconv.Itoa(int(f.Round)), strconv.Itoa(int(f.SampleIndex)))
	if i == 0 {
		d.samples[id] = seeded{*f.Seed, *f.Reward}
		return
	}
	if a, ok := d.samples[id]; ok && a.seed == *f.Seed {
		d.pairs.add(a.reward, *f.Reward)
	}
}

func (d *difference) finish(top int) {
	a, b := d.sides[0], d.sides[1]
	d.Reward = sampler.Compare(&a.rewards, &b.rewards)
	d.Worse = d.Reward != nil && d.Reward.Difference.High != nil && *d.Reward.Difference.High < 0
	if d.pairs.Pairs > 0 {
		d.Samples = &d.pairs
	}
	d.finishTasks(top)
	for _, name := range union(a.components, b.components) {
		d.Components[name] = sampler.Compare(clustersOf(a.components, name), clustersOf(b.components, name))
	}
	for _, name := range measureNames() {
		d.Measures = append(d.Measures, measure{name, sampler.Compare(clustersOf(a.measures, name), clustersOf(b.measures, name))})
	}
	d.finishTools()
	d.finishCounts()
}

func union[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

func (d *difference) finishTasks(top int) {
	a, b := d.sides[0].tasks, d.sides[1].tasks
	d.Top = []taskChange{}
	for id, x := range a {
		y := b[id]
		if y == nil {
			d.Tasks.OnlyA++
			continue
		}
		d.Tasks.Both++
		if x.hash != y.hash {
			d.Tasks.Other++
			d.Tasks.IDs = append(d.Tasks.IDs, x.id)
		}
		if x.n == 0 || y.n == 0 {
			continue
		}
		change := changeOf(x, y)
		d.ByTask.add(change.A, change.B)
		if change.Difference != 0 {
			d.Top = append(d.Top, change)
		}
	}
	for id := range b {
		if a[id] == nil {
			d.Tasks.OnlyB++
		}
	}
	slices.Sort(d.Tasks.IDs)
	slices.SortFunc(d.Top, func(x, y taskChange) int {
		return cmp.Or(cmp.Compare(math.Abs(y.Difference), math.Abs(x.Difference)), cmp.Compare(x.TaskID, y.TaskID))
	})
	d.Top = d.Top[:min(top, len(d.Top))]
}

// changeOf holds a task against itself. The episodes to look at are those that show the change most: of the run that is better its best
// one, of the other its worst.
func changeOf(x, y *taskSums) taskChange {
	c := taskChange{TaskID: x.id, A: x.sum / float64(x.n), B: y.sum / float64(y.n)}
	c.Difference = c.B - c.A
	c.EpisodeA, c.EpisodeB = x.high.episode, y.low.episode
	if c.Difference > 0 {
		c.EpisodeA, c.EpisodeB = x.low.episode, y.high.episode
	}
	return c
}

// finishTools makes the calls of a tool a number of every episode: 0 where it was not called.
func (d *difference) finishTools() {
	a, b := d.sides[0], d.sides[1]
	d.Tools = []toolDifference{}
	for _, name := range union(a.tools, b.tools) {
		t := toolDifference{Name: name}
		var sums [2]*sampler.Clusters
		for i, s := range d.sides {
			one := s.tools[name]
			if one == nil {
				one = &toolSums{}
			}
			one.byTask.AddAll(&s.episodes)
			sums[i], t.Calls[i], t.NotOK[i] = &one.byTask, one.calls, one.notOK
		}
		t.Episode = sampler.Compare(sums[0], sums[1])
		d.Tools = append(d.Tools, t)
	}
	slices.SortStableFunc(d.Tools, func(x, y toolDifference) int { return cmp.Compare(y.Calls[0]+y.Calls[1], x.Calls[0]+x.Calls[1]) })
}

func (d *difference) finishCounts() {
	d.Counts = []countDifference{}
	all := maps.Clone(d.sides[0].counts)
	maps.Copy(all, d.sides[1].counts)
	for k := range all {
		d.Counts = append(d.Counts, countDifference{k[0], k[1], [2]int64{d.sides[0].counts[k], d.sides[1].counts[k]}})
	}
	slices.SortFunc(d.Counts, func(x, y countDifference) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
	})
}

// compareSettings says what differs in what the two runs are, before it is said what came of it.
func (d *difference) compareSettings() error {
	var files [2]*runFile
	for i := range files {
		side := d.side(i)
		file, ok, err := readRunFile(side.Dir)
		if err != nil {
			return err
		}
		if !ok {
			d.Notes = append(d.Notes, side.Dir+": it holds no "+runFileName+": its settings are not compared")
			continue
		}
		files[i], side.RunID = file, file.RunID
	}
	for _, dir := range []string{d.A.Dir, d.B.Dir} {
		d.Notes = append(d.Notes, rewardNotes(dir)...)
	}
	if files[0] == nil || files[1] == nil {
		return nil
	}
	d.Settings = settingChanges(files[0], files[1])
	if a, b := files[0].Version, files[1].Version; a != b {
		d.Notes = append(d.Notes, fmt.Sprintf("played by other versions of tranche: %s, then %s", a, b))
	}
	return nil
}

// settingChanges lists the keys of run.yaml that differ, those that change results first.
func settingChanges(a, b *runFile) []settingChange {
	list := []settingChange{}
	for _, c := range changes(identity(&a.Settings, a.TasksDigest, modelsOf(&a.Settings)), identity(&b.Settings, b.TasksDigest, modelsOf(&b.Settings))) {
		list = append(list, settingChange{c.name, c.was, c.is, true})
	}
	for _, k := range keys() {
		known := slices.ContainsFunc(list, func(s settingChange) bool { return s.Key == k.name })
		was, is := string(encode(plain(&a.Settings, k))), string(encode(plain(&b.Settings, k)))
		if k.scope == scopeSession || known || was == is {
			continue
		}
		list = append(list, settingChange{k.name, orNone(was), orNone(is), false})
	}
	return list
}

// exactly is what `tranche diff --exact` tells.
type exactly struct {
	A     string   `json:"a"`
	B     string   `json:"b"`
	Same  int64    `json:"same"`      // rows
	Other int64    `json:"different"` // rows with the same id
	OnlyA int64    `json:"only_a"`
	OnlyB int64    `json:"only_b"`
	IDs   []string `json:"only,omitempty"` // some of those that are in one alone

	First []rowDifference `json:"first"`
	Notes []string        `json:"notes,omitempty"`
}

type rowDifference struct {
	EpisodeID string               `json:"episode_id"`
	TaskID    string               `json:"task_id"`
	Fields    []storage.Difference `json:"fields"`
}

// fieldsShown is how many places are named of one row.
const fieldsShown = 5

func (c *diffCmd) exact(ctx context.Context, a *app) error {
	d := &exactly{A: c.A, B: c.B, First: []rowDifference{}}
	held := map[string][16]byte{} // of A
	runs := map[string]string{}
	err := c.eachRow(ctx, a, c.A, func(r *storage.Row) error {
		sum, err := r.LastingSum()
		held[r.EpisodeID], runs["a"] = sum, r.RunID
		return err
	})
	if err != nil {
		return err
	}
	var other []string
	err = c.eachRow(ctx, a, c.B, func(r *storage.Row) error {
		runs["b"] = r.RunID
		was, ok := held[r.EpisodeID]
		delete(held, r.EpisodeID)
		sum, err := r.LastingSum()
		switch {
		case !ok:
			d.OnlyB++
			d.only(r.EpisodeID, c.Top)
		case sum == was:
			d.Same++
		default:
			d.Other++
			other = least(other, r.EpisodeID, c.Top)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.OnlyA = int64(len(held))
	for _, id := range slices.Sorted(maps.Keys(held)) {
		d.only(id, c.Top)
	}
	if d.Same+d.Other == 0 && runs["a"] != runs["b"] {
		d.Notes = append(d.Notes, fmt.Sprintf("no episode is in both: ids follow from the run's settings and tasks, and these are the runs %s and %s", orDash(runs["a"]), orDash(runs["b"])))
	}
	if err := c.explain(a, d, other); err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(d)
	} else {
		err = a.print(d.text(a.colour))
	}
	if err == nil && d.Other+d.OnlyA+d.OnlyB > 0 {
		return outcome(codeDiffers)
	}
	return err
}

// only notes an id that is in one run alone, as long as there is room.
func (d *exactly) only(id string, most int) {
	if len(d.IDs) < most {
		d.IDs = append(d.IDs, id)
	}
}

// least keeps the first few ids by their order, so that the same runs always name the same ones.
func least(list []string, id string, most int) []string {
	at, _ := slices.BinarySearch(list, id)
	list = slices.Insert(list, at, id)
	return list[:min(len(list), most)]
}

func (c *diffCmd) eachRow(ctx context.Context, a *app, dir string, do func(*storage.Row) error) error {
	view := &viewCmd{Dir: dir}
	run, err := view.open(a)
	if err != nil {
		return err
	}
	var failed error
	err = view.eachRow(ctx, a, run, func(r *storage.Row) {
		if failed == nil {
			failed = do(r)
		}
	})
	return errors.Join(err, failed)
}

// explain reads the rows that differ once more, and names the places.
func (c *diffCmd) explain(a *app, d *exactly, ids []string) error {
	var runs [2]*storage.Run
	for i, dir := range []string{c.A, c.B} {
		run, err := (&viewCmd{Dir: dir}).open(a)
		if err != nil {
			return err
		}
		runs[i] = run
	}
	for _, id := range ids {
		x, err := runs[0].Find(id)
		if err != nil {
			return withCode(codeDisk, err)
		}
		y, err := runs[1].Find(id)
		if err != nil {
			return withCode(codeDisk, err)
		}
		d.First = append(d.First, rowDifference{id, x.TaskID, storage.Differences(x, y, fieldsShown)})
	}
	return nil
}
