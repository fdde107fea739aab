package judge

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"tranche/reward"
)

// Model answers a question. Retries, waits and limits are its business. An error that is a *reward.Unjudged is told as it stands.
type Model interface {
	Ask(ctx context.Context, q Question) (Answer, error)
}

// Question is one call.
type Question struct {
	ID          string // unique: grading, vote and order
	Prompt      string // of the user; there is nothing else
	Temperature float64
	Seed        *int64 // nil = not sent
	MaxTokens   int
}

// Answer is what came back.
type Answer struct {
	Text                           string // without reasoning
	Cut                            bool   // it ended at its length
	PromptTokens, CompletionTokens int
}

// Seat is who judges.
type Seat struct {
	Model Model
	Name  string // of the model; it is part of the digest of the grader's settings
}

// Judge is the grader.
type Judge struct {
	opt    Options
	name   string // of the component
	seat   Seat
	prompt *prompt
	tells  string // Decides
}

var (
	_ reward.Grader  = (*Judge)(nil)
	_ reward.Decided = (*Judge)(nil)
	_ reward.Timed   = (*Judge)(nil)
	_ reward.Prober  = (*Judge)(nil)
)

// Kind offers the grader. seat finds who judges: those endpoints, or the run's own where there are none.
func Kind(seat func(own []Endpoint) (Seat, error)) reward.Kind {
	return reward.Kind{Name: KindName, Waits: true, Make: func(s reward.Spec) (reward.Grader, error) { return newJudge(s, seat) }}
}

func newJudge(s reward.Spec, seat func([]Endpoint) (Seat, error)) (*Judge, error) {
	opt, err := ReadOptions(s)
	if err != nil {
		return nil, err
	}
	text, err := opt.text()
	if err != nil {
		return nil, err
	}
	j := &Judge{opt: opt, name: s.Name}
	if j.prompt, err = newPrompt(text, opt); err != nil {
		return nil, err
	}
	if j.seat, err = seat(opt.Endpoints); err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	j.tells = opt.decides(text, j.seat.Name)
	return j, nil
}

// ID is the kind and its version.
func (*Judge) ID() string { return KindName + "/1" }

// Decides is the options with the template's digest and the model's name.
func (j *Judge) Decides() string { return j.tells }

// Timeout is for one grading.
func (j *Judge) Timeout() time.Duration { return j.opt.Timeout }

// Reasons for there being no verdict.
const (
	Failed   = "judge_failed"   // it did not answer
	Unread   = "judge_unread"   // it did not answer in the asked form
	Disagree = "judge_disagree" // it does not agree with itself
	NoRoom   = "judge_no_room"  // question, reference and answer are too long for it
	NoAsk    = "no_question"    // there is no message of a user
)

// Grade asks and counts. The cost is that of all answers, also beside an error.
func (j *Judge) Grade(ctx context.Context, in reward.Input) (reward.Finding, error) {
	seen, err := j.look(in)
	if err != nil {
		return reward.Finding{}, err
	}
	if seen.Answer == "" {
		return reward.Finding{Evidence: "no final text"}, nil
	}
	replies, cost, err := j.ask(ctx, in.Episode, seen)
	if err != nil {
		return reward.Finding{Cost: cost}, err
	}
	f, err := j.count(replies)
	f.Cost = cost
	return f, err
}

// look takes what the judge sees out of an episode.
func (j *Judge) look(in reward.Input) (slots, error) {
	s := slots{Question: strings.TrimSpace(in.Asked()), Answer: said(in.Text), Items: j.opt.Items, Scale: j.opt.Scale}
	if in.Task.Answer != nil {
		s.Reference = strings.TrimSpace(*in.Task.Answer)
	}
	if s.Reference == "" && j.opt.compares() {
		return s, &reward.Unjudged{Reason: reward.MissingTruth}
	}
	if s.Question == "" {
		return s, &reward.Unjudged{Reason: NoAsk}
	}
	return s, nil
}

// orders is how many ways one vote asks.
func (j *Judge) orders() int {
	if *j.opt.Swap {
		return 2
	}
	return 1
}

// reply is one call's answer, read.
type reply struct {
	words   map[string]string
	text    string
	cost    reward.Cost
	failure error
}

// ask makes all calls of one grading at once and returns when the last has ended; replies are by vote and order. Of several errors it is
// that of the first call.
func (j *Judge) ask(ctx context.Context, episode string, s slots) (votes [][]reply, cost reward.Cost, err error) {
	var all sync.WaitGroup
	for v := range j.opt.Votes {
		vote := make([]reply, j.orders())
		for o := range vote {
			all.Go(func() { vote[o] = j.call(ctx, episode, s, v, o) })
		}
		votes = append(votes, vote)
	}
	all.Wait()
	for _, vote := range votes {
		for _, r := range vote {
			cost = cost.Plus(r.cost)
			if err == nil {
				err = r.failure
			}
		}
	}
	return votes, cost, err
}

// call makes one call and reads its answer.
func (j *Judge) call(ctx context.Context, episode string, s slots, vote, order int) (r reply) {
	if s.A, s.B = s.Reference, s.Answer; order == 1 {
		s.A, s.B = s.B, s.A
	}
	text, err := j.prompt.make(s)
	if err != nil {
		return reply{failure: err}
	}
	q := Question{
		ID: fmt.Sprintf("%s/%s/%d.%d", episode, j.name, vote, order), Prompt: text, Temperature: j.opt.Temperature, MaxTokens: j.opt.MaxTokens,
	}
	if j.opt.Votes > 1 {
		seed := seedOf(q.ID)
		q.Seed = &seed
	}
	a, err := j.seat.Model.Ask(ctx, q)
	r.cost = reward.Cost{PromptTokens: a.PromptTokens, CompletionTokens: a.CompletionTokens}
	if err != nil {
		r.failure = failure(ctx, err)
		return r
	}
	r.text = said(a.Text)
	if r.words, err = j.read(r.text); a.Cut { // "Verdict: 1" may have been about to be 10
		err = fmt.Errorf("it was cut at %d tokens (max-tokens)", a.CompletionTokens)
	}
	if err != nil {
		r.failure = &reward.Unjudged{Reason: Unread, Detail: err.Error(), Retry: true}
	}
	return r
}

// seedOf draws a seed that every server takes: 31 bits.
func seedOf(id string) int64 {
	sum := sha256.Sum256([]byte(id))
	return int64(binary.BigEndian.Uint32(sum[:4]) >> 1)
}

// failure is what a call that failed means: never a verdict.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var told *reward.Unjudged
	if errors.As(err, &told) {
		return told
	}
	return &reward.Unjudged{Reason: Failed, Detail: err.Error(), Retry: true}
}
