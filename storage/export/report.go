package export

// Reasons for a row to be in no record. Those of the filter are "filter:" and the field that refused it.
const (
	leftFilter     = "filter:"
	leftNoIDs      = "no_token_ids"           // the server gave none
	leftPartIDs    = "incomplete_token_ids"   // the ids of a prompt or of an answer are missing
	leftCutPrompt  = "prompt_cut"             // the server saw less of a prompt than it was sent
	leftUnsampled  = "nothing_sampled"        // no id that the policy sampled
	leftBroken     = "broken_prefix"          // the prompt of a turn did not go on from the turn before
	leftLogprobs   = "no_logprobs"            // a sampled id has none that is finite
	leftLong       = "too_long"               // over the maximum length
	leftUnmeasured = "length_not_known"       // a maximum length was asked for and the row has no ids
	leftNoVerdict  = "no_verdict"             // no reward
	leftSilent     = "nothing_said"           // there is a prompt alone
	leftArguments  = "arguments_no_object"    // tool arguments that are no JSON object were to be objects
	leftTools      = "tools_not_known"        // what the model was told it may call is not known
	leftAlone      = "alone_in_group"         // no other sample to compare with
	leftTie        = "tie"                    // all rewards of the group are equal
	leftGap        = "gap_too_small"          // the rewards differ less than asked for
	leftBetween    = "neither_best_nor_worst" // of a group of which a pair was made
	leftSameAnswer = "same_answer"            // the two of a pair say the same
	leftPrompts    = "prompts_differ"         // the two of a pair were asked in different words
	leftSameTask   = "same_task"              // a record of its task is there
	leftPromptCall = "prompt_not_plain"       // its prompt holds more than roles and contents
	leftGroup      = "group_not_whole"        // whole groups were asked for
	leftLate       = "came_later"             // it was added while the export ran
)

// Report counts what became of the rows: RowsRead is RowsTaken and all of LeftOut.
type Report struct {
	Shape     string           `json:"shape"`
	Format    string           `json:"format"`
	RowsRead  int64            `json:"rows_read"`
	RowsTaken int64            `json:"rows_taken"` // that are in a record
	Records   int64            `json:"records"`
	LeftOut   map[string]int64 `json:"left_out"` // rows by reason

	// Tokens and TrainedTokens are the ids in the records and those of them that count for the loss, of shapes that hold ids.
	Tokens        int64 `json:"tokens"`
	TrainedTokens int64 `json:"trained_tokens"`
}

func (r *Report) leave(why string) { r.LeftOut[why]++ }

// counted are records that hold token ids.
type counted interface{ tokens() (all, trained int) }

func (r *Report) record(rec any) {
	r.Records++
	if c, ok := rec.(counted); ok {
		all, trained := c.tokens()
		r.Tokens += int64(all)
		r.TrainedTokens += int64(trained)
	}
}
