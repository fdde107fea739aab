package export

import (
	"encoding/json"
	"reflect"

	"tranche/storage"
)

// pairs makes preference records of the samples of a group: the better answer and the worse one to the same prompt. Read by TRL,
// trl/trainer/dpo_trainer.py (prompt, chosen, rejected as lists of messages, tools), and by OpenRLHF's reward model and DPO sets
// (--prompt_key prompt --chosen_key chosen --rejected_key rejected). score_chosen and score_rejected are the rewards.
//
// Samples without a verdict are in no pair: no verdict is not a bad one. Samples of equal reward are no pair.
type pairs struct{ cfg *Config }

type pairRecord struct {
	Prompt        []Message       `json:"prompt" parquet:"prompt,list"`
	Chosen        []Message       `json:"chosen" parquet:"chosen,list"`
	Rejected      []Message       `json:"rejected" parquet:"rejected,list"`
	Tools         json.RawMessage `json:"tools,omitempty"`
	ScoreChosen   real            `json:"score_chosen" parquet:"score_chosen"`
	ScoreRejected real            `json:"score_rejected" parquet:"score_rejected"`
}

func newPairs(cfg *Config) maker { return &pairs{cfg} }

// candidate is a row that may be one half of a pair.
type candidate struct {
	row          int
	reward       float64
	prompt, said []Message
	tools        json.RawMessage
}

func (p *pairs) make(rows []*storage.Row) (records []any, left []string) {
	left = make([]string, len(rows))
	var fit []candidate
	for i, r := range rows {
		prompt, said, tools, why := p.cfg.conversation(r)
		if why == "" && r.Reward == nil {
			why = leftNoVerdict
		}
		if left[i] = why; why == "" {
			fit = append(fit, candidate{i, *r.Reward, prompt, said, tools})
		}
	}
	if len(fit) < 2 {
		for _, c := range fit {
			left[c.row] = leftAlone
		}
		return nil, left
	}
	used := map[int]bool{}
	why := map[int]string{}
	for _, couple := range p.couples(fit) {
		better, worse := couple[0], couple[1]
		if refused := p.refuse(better, worse); refused != "" {
			why[better.row], why[worse.row] = refused, refused
			continue
		}
		used[better.row], used[worse.row] = true, true
		records = append(records, pairRecord{better.prompt, better.said, worse.said, better.tools, real(better.reward), real(worse.reward)})
	}
	for _, c := range fit {
		switch {
		case used[c.row]:
		case why[c.row] != "":
			left[c.row] = why[c.row]
		default:
			left[c.row] = leftBetween
		}
	}
	return records, left
}

// couples are the two that are to be compared, or all. The first of equals stands for them. Of equal rewards none is better: they are refused then.
func (p *pairs) couples(fit []candidate) (all [][2]candidate) {
	if !p.cfg.AllPairs {
		best, worst := fit[0], fit[0]
		for _, c := range fit[1:] {
			if c.reward > best.reward {
				best = c
			}
			if c.reward < worst.reward {
				worst = c
			}
		}
		if best.row == worst.row { // all are equal
			for _, c := range fit[1:] {
				all = append(all, [2]candidate{best, c})
			}
			return all
		}
		return [][2]candidate{{best, worst}}
	}
	for i, a := range fit {
		for _, b := range fit[i+1:] {
			if a.reward >= b.reward {
				all = append(all, [2]candidate{a, b})
			} else {
				all = append(all, [2]candidate{b, a})
			}
		}
	}
	return all
}

// refuse says why two rows are no pair.
func (p *pairs) refuse(better, worse candidate) string {
	switch {
	case better.reward == worse.reward:
		return leftTie
	case better.reward-worse.reward < p.cfg.MinGap:
		return leftGap
	case !reflect.DeepEqual(better.prompt, worse.prompt), string(better.tools) != string(worse.tools):
		return leftPrompts
	case reflect.DeepEqual(better.said, worse.said):
		return leftSameAnswer
	}
	return ""
}
