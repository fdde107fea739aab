package export

import (
	"fmt"
	"io"
	"strings"

	"tranche/storage"
)

// Formats of a file.
const (
	JSONL   = "jsonl"
	Parquet = "parquet"
)

// Forms of tool arguments and of tools.
const (
	AsText   = "text"   // the raw text, as it is on the wire
	AsObject = "object" // tool arguments: the JSON object itself
	AsList   = "list"   // tools: a list of objects
	AsUnion  = "union"  // tools: a list of objects, in Parquet with a null for every key that only other tools have
	AsNone   = "none"   // tools: left out
)

// unit is what a shape wants to see together.
type unit int

const (
	eachRow unit = iota
	eachGroup
	eachTask // the first row that is taken of each task, with what is known of all
)

// Shape is what one trainer loads.
type Shape struct {
	Name    string
	Help    string   // one line
	Formats []string // the first is the default
	Tools   string   // default form of the tools; "" = the shape has none
	ids     bool     // its records hold token ids
	unit    unit
	table   func(io.Writer) sink // Parquet of its records
	record  any                  // in the place of table, where the rows decide on the type of the tools: a record without values
	open    func(*Config) maker
}

// Shapes is the catalogue, in the order in which help lists it.
func Shapes() []Shape {
	table, chat, lines := []string{Parquet, JSONL}, []string{JSONL, Parquet}, []string{JSONL}
	return []Shape{
		{Name: "trl-sft", Help: "exact tokens for TRL's SFT: input_ids, labels (-100 where nothing was sampled)", Formats: table, ids: true, table: tableOf[trlRecord], open: newTRLSFT},
		{Name: "messages", Help: "chats for TRL's SFT, prime-rl, open-instruct, slime's SFT: messages, tools", Formats: chat, Tools: AsText, record: chatRecord{}, open: newChats},
		{Name: "prompt-completion", Help: "the same, parted, for TRL's SFT: prompt, completion, tools", Formats: chat, Tools: AsText, record: completionRecord{}, open: newCompletions},
		{Name: "dpo", Help: "pairs within a group for TRL's DPO and OpenRLHF: prompt, chosen, rejected, tools, scores", Formats: chat, Tools: AsText, unit: eachGroup, record: pairRecord{}, open: newPairs},
		{Name: "verl-rl", Help: "one prompt a task for verl's RL: data_source, prompt, ability, reward_model, extra_info with the pass rate", Formats: table, unit: eachTask, table: tableOf[verlRecord], open: newVerlRL},
		{Name: "verl-sft", Help: "chats for verl's multi-turn SFT: messages, tools as a list", Formats: []string{Parquet}, Tools: AsList, record: chatRecord{}, open: newChats},
		{Name: "skyrl", Help: "one prompt a task for SkyRL: data_source, prompt, env_class, reward_spec, extra_info with the pass rate", Formats: table, unit: eachTask, table: tableOf[skyrlRecord], open: newSkyRL},
		{Name: "skyrl-sft", Help: "exact tokens for the SFT of SkyRL and AReaL: input_ids, loss_mask", Formats: table, ids: true, table: tableOf[skyrlSFTRecord], open: newSkyRLSFT},
		{Name: "slime", Help: "slime's Samples: tokens, response_length, loss_mask, reward, rollout_log_probs", Formats: lines, Tools: AsList, ids: true, unit: eachGroup, open: newSlime},
		{Name: "atropos", Help: "groups as they are posted to Atropos: tokens, masks, scores, inference_logprobs, messages", Formats: lines, ids: true, unit: eachGroup, open: newAtropos},
		{Name: "areal", Help: "AReaL's rollout tensors: input_ids, loss_mask, logprobs, versions, attention_mask, rewards", Formats: table, ids: true, table: tableOf[arealRecord], open: newAReaL},
		{Name: "atif", Help: "trajectories in Harbor's ATIF, one a line: steps with calls, observations, metrics", Formats: lines, Tools: AsList, open: newATIF},
		{Name: "openai-batch", Help: "an output file of OpenAI's batch API: the last answer of each row", Formats: lines, open: newBatch},
	}
}

// Named is the shape of that name; the error lists all.
func Named(name string) (Shape, error) {
	var names []string
	for _, s := range Shapes() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Shape{}, fmt.Errorf("no such shape: %q; there are %s", name, strings.Join(names, ", "))
}

// maker makes the records of one export. It is called for one unit after the other: a row, a group in sample order, or the first row of a task.
type maker interface {
	// make returns the records, and for every row why it is in none of them; "" = it is in one.
	make(rows []*storage.Row) (records []any, left []string)
}
