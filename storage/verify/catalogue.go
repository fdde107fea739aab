package verify

import "slices"

// Class is a kind of finding; the order is that of gravity.
type Class int

// Classes, the gravest first.
const (
	Files    Class = iota // bytes are not those that were published
	Keys                  // which rows there are
	Tokens                // the token sequence, what a trainer trains on
	Talk                  // messages, turns, actions, how it ended
	Text                  // strings and JSON
	Verdicts              // rewards
	Sums                  // counts and times that follow from the rest
)

// String is the class's name.
func (c Class) String() string {
	names := [...]string{"files", "keys", "tokens", "talk", "text", "verdicts", "sums"}
	if c < 0 || int(c) >= len(names) {
		return "unknown"
	}
	return names[c]
}

// MarshalText writes the name.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Classes lists them, the gravest first.
func Classes() []Class { return []Class{Files, Keys, Tokens, Talk, Text, Verdicts, Sums} }

// Check is one thing that is proved.
type Check struct {
	Name  string `json:"check"`
	Class Class  `json:"class"`
	Means string `json:"means"` // what a finding means

	// row looks at one row and says which column is wrong and how; "" = it is not. nil where the check is about more, or less, than a row.
	row func(*row) (column, what string)
}

// Checks is the catalogue, by class.
func Checks() []Check {
	return slices.Concat(fileChecks(), keyChecks(), tokenChecks(), talkChecks(), textChecks(), verdictChecks(), sumChecks())
}

func fileChecks() []Check {
	return []Check{
		{"manifest", Files, "manifest.json cannot be read, or contradicts itself: which files count is not certain", nil},
		{"file-missing", Files, "a file that the manifest lists is not there: its rows are lost", nil},
		{"file-bytes", Files, "a file has another size than when it was published", nil},
		{"file-sha256", Files, "a file has other bytes than when it was published", nil},
		{"file-footer", Files, "the end of a Parquet file cannot be read, and with it nothing of the file", nil},
		{"file-schema", Files, "a file has other columns than the format: readers may refuse it or misread it", nil},
		{"file-rows", Files, "a file has other numbers of rows or row groups than the manifest says", nil},
		{"file-pages", Files, "the checksum of a page says that its bytes were changed", nil},
		{"file-decode", Files, "pages of a file cannot be decoded, though no checksum contradicts", nil},
		{"file-ids", Files, "the manifest names another first, last, least or greatest episode of a file than there is: a search by id may pass it over", nil},
		{"file-unlisted", Files, "a Parquet file lies in the dataset's folders and the manifest does not list it: whoever reads the folder by a pattern reads rows that do not count", nil},
		{"journal", Files, "bytes of the journal are no record: rows in them are lost, and resume does them again", nil},
		{"journal-rows", Files, "a record of the journal is whole and holds no row that can be read, or that of another key", nil},
		{"journal-turns", Files, "bytes of a file of kept turns are no record: no row is lost, and resume plays their episodes from an earlier turn on", nil},
		{"records", Files, "run.yaml, summary.json, account.json, task-states.json, draws.jsonl or a file of endpoints/ cannot be read", nil},
	}
}

func keyChecks() []Check {
	return []Check{
		{"key-unique", Keys, "an episode is in the dataset twice", nil},
		{"key-derived", Keys, "an id is not the one that run, task, round and sample give: a resume would not know the row", keyDerived},
		{"key-run", Keys, "a row is of another run than run.yaml", keyRun},
		{"folder", Keys, "a failed episode lies among the good rows, or a good one among the failures", folder},
		{"group-whole", Keys, "a published group lacks samples, or has more than its size", nil},
		{"group-together", Keys, "the good rows of a group are not adjacent in one row group, and it was not for a retry", nil},
		{"group-size", Keys, "rows of a group disagree about its size, or a sample's number is not below it", nil},
		{"task-hash", Keys, "rows of one task have different task hashes: they were not asked the same", nil},
		{"reward-set", Keys, "a file of rescored rewards does not hold the rows of the file it stands for, or changes more than rewards", nil},
		{"draws", Keys, "a group has another size than the one that draws.jsonl says it was ended with", nil},
	}
}

func tokenChecks() []Check {
	return []Check{
		{"token-lengths", Tokens, "token_ids, loss_mask, logprobs and versions, or the lists of a break, are not equally long", tokenLengths},
		{"token-ids", Tokens, "a token id is below 0", tokenIDs},
		{"loss-mask", Tokens, "a value of loss_mask is neither 0 nor 1", lossMask},
		{"logprob-mask", Tokens, "a token that was not sampled has a logprob", logprobMask},
		{"logprob-null", Tokens, "a sampled token has no logprob, others have, and no flag says so", logprobNull},
		{"logprob-range", Tokens, "a logprob is above 0, where a probability is above 1", logprobRange},
		{"prompt-len", Tokens, "prompt_len is not where the first sampled token stands", promptLen},
		{"versions", Tokens, "weight versions fall inside a turn, leave the turn's bounds, or stand on tokens that were not sampled", versions},
		{"prefix", Tokens, "a turn's prompt does not go on from the turn before, and neither prefix_break nor breaks says so", prefix},
		{"turn-tokens", Tokens, "the ids of a turn's prompt or answer are more or fewer than the server counted", turnTokens},
	}
}

func talkChecks() []Check {
	return []Check{
		{"prompt-messages", Talk, "num_prompt_messages is not from 0 to the number of messages", promptMessages},
		{"roles", Talk, "the messages behind the prompt are not one of the assistant for each turn, each followed by the answers to its calls", roles},
		{"turns", Talk, "num_turns is not the number of turns", numTurns},
		{"actions", Talk, "the actions of a turn are not the tool calls of its message", actionsMatch},
		{"tool-messages", Talk, "the answer to an action is missing, or names another call", toolMessages},
		{"forms", Talk, "an entry of forms is of no message of the assistant, or of one twice", forms},
		{"raw", Talk, "a kept answer is of no turn, or has more bytes than it says", rawAnswers},
		{"status", Talk, "status, stop_reason and fault contradict one another", statusFits},
	}
}

func textChecks() []Check {
	return []Check{
		{"utf8", Text, "a string is no valid UTF-8: readers of other languages refuse the file", validText},
		{"json", Text, "tools, sampling or extra_info is no JSON of its form", validJSON},
		{"flags", Text, "flags are not in order, one is there twice, or usage_missing says other than the turns", flagsFit},
	}
}

func verdictChecks() []Check {
	return []Check{
		{"scored", Verdicts, "scored does not say whether there is a reward", scored},
		{"components", Verdicts, "a component has a score and an outcome that contradict, or a score outside of 0 to 1, or a weight below 0", components},
		{"reward", Verdicts, "reward is not what the components give by the run's rule", rewardFits},
		{"credit", Verdicts, "the credit of turns has another number of entries than there are turns", creditFits},
	}
}

func sumChecks() []Check {
	return []Check{
		{"token-sums", Sums, "num_input_tokens or num_output_tokens is not the sum over the turns", tokenSums},
		{"timing", Sums, "a time is below 0 or no number, or the parts are more than the whole, or not the sums over turns and actions", timing},
		{"created", Sums, "created_at, or the time of an attempt, is in the future or before there was such a program", created},
		{"branches", Sums, "branch_index is not below num_branches, or schema_version is another than the file's", branches},
		{"summary", Sums, "summary.json counts other rows than there are", nil},
	}
}
