package main

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"tranche/action"
	"tranche/inference"
	"tranche/storage"
)

// Settings is every setting of a run: one field a key. The flags and the YAML file are both read into it, under the same
// names; a flag wins over the file, the file over the default. The tag `scope` says what a key may do:
//
//	result     it can change what is stored: part of the run's id, and resume refuses another value
//	operation  it changes speed, limits or places, not results: resume takes a new value
//	session    it is about this one invocation and is not kept in run.yaml
type Settings struct {
	Tasks []string `kong:"-" scope:"operation"`

	// Where things go.
	Out        string `short:"o" placeholder:"DIR" group:"where" scope:"session" help:"Run directory. Default: runs/NAME."`
	Name       string `placeholder:"NAME" group:"where" scope:"operation" help:"Name of the run under runs/. Default: the task file's name and the time."`
	DryRun     bool   `group:"where" scope:"session" help:"Check everything, print the first request and how many calls there would be; send no generation request, write nothing."`
	JSON       bool   `name:"json" group:"where" scope:"session" help:"Print the result as one JSON document on stdout."`
	Quiet      bool   `short:"q" group:"where" scope:"session" help:"No progress and no notices on stderr; errors and the result still come."`
	Display    string `name:"progress" enum:"auto,bar,plain,none" default:"auto" group:"where" scope:"session" help:"Progress on stderr: bar (one redrawn line), plain (a line every 10s), none, auto (bar on a terminal, else plain). Default: ${default}."`
	Feed       string `placeholder:"ADDR" group:"where" scope:"session" help:"Serve the rows over HTTP as Arrow streams while the run goes on, at this address, such as 127.0.0.1:8700 (docs/feed.md). Default: they are not served."`
	FeedKeyEnv string `name:"feed-key-env" placeholder:"NAME" group:"where" scope:"session" help:"NAME of the environment variable that holds the key which clients of --feed must send. Default: none is asked for."`

	// Which tasks.
	Format     string `enum:"auto,tranche,verl,skyrl,openai-batch" default:"auto" group:"tasks" scope:"result" help:"Shape of the task rows: auto, tranche, verl, skyrl, openai-batch. Default: ${default}."`
	ID         string `name:"id" placeholder:"TEMPLATE" group:"tasks" scope:"result" help:"Template for the task id, e.g. '{{.qid}}'. Default: the column id, else a hash of the content."`
	Prompt     string `placeholder:"TEMPLATE" group:"tasks" scope:"result" help:"Template for the user message, e.g. '{{.question}}'. Default: the column prompt or messages."`
	System     string `placeholder:"TEMPLATE" group:"tasks" scope:"result" help:"Template for the system message. Default: the column system, else none."`
	Answer     string `placeholder:"TEMPLATE" group:"tasks" scope:"result" help:"Template for the ground truth, e.g. '{{after \"####\" .answer}}'. Default: answer or reward_model.ground_truth."`
	DataSource string `placeholder:"TEMPLATE" group:"tasks" scope:"result" help:"Template for the domain label. Default: the column data_source."`
	EnvClass   string `placeholder:"TEMPLATE" group:"tasks" scope:"result" help:"Template for the environment label. Default: the column env_class."`
	SkipBad    bool   `group:"tasks" scope:"result" help:"Skip bad rows (counted and listed) where they would stop the run before its first request."`
	Limit      int    `default:"0" placeholder:"TASKS" group:"tasks" scope:"result" help:"Take at most so many tasks; 0 = all. Default: ${default}."`
	Offset     int    `default:"0" placeholder:"TASKS" group:"tasks" scope:"result" help:"Leave out so many tasks at the start. Default: ${default}."`
	Order      string `enum:"file,shuffle" default:"file" group:"tasks" scope:"operation" help:"Order of the tasks: file, or shuffle (inside a moving window, by the seed). Default: ${default}."`
	Window     int    `default:"4096" placeholder:"TASKS" group:"tasks" scope:"operation" help:"Tasks held for shuffling. Default: ${default} tasks."`
	Rounds     int    `default:"1" placeholder:"N" group:"tasks" scope:"result" help:"How often the whole task list is gone through. Default: ${default}."`
	Seed       int64  `default:"0" placeholder:"N" group:"tasks" scope:"result" help:"Seed of the run: order, keys and, with --send-seed, the seeds sent. Default: ${default}."`

	// Which tasks how often, and what is learned from them on the way.
	Mix            Pairs    `placeholder:"SPEC" group:"draws" scope:"result" help:"Shares of the domains (data_source) among the groups: size (by their numbers of tasks), equal, temperature=T (numbers to the power 1/T), DOMAIN=WEIGHT,... (* = all others), or progress (more where the reward moves); with floor=, cap= (least and largest share of a domain) and, for progress, every= (groups between two looks). They hold at every moment, but for one group. Holds all tasks in memory. Default: the domains are not told apart."`
	Band           Pairs    `placeholder:"LOW-HIGH" group:"draws" scope:"result" help:"Draw tasks whose pass rate may lie between, such as 0.2-0.8: those that are surely too hard or too easy are left out, and looked at again now and then. Also keep= (how much of what was known still counts after each group, 0.8), memory= (most trials that --history counts as, 8), revisit= (least chance of a task to be tried, 0.05). Default: every task."`
	History        []string `sep:"none" placeholder:"DIR" group:"draws" scope:"operation" help:"Run directory whose results say how hard the tasks are at the start, told apart by their content; may be repeated. Read once, when the run begins. Default: none."`
	Draws          int      `default:"0" placeholder:"GROUPS" group:"draws" scope:"result" help:"Groups to draw in all; tasks come again as often as that takes. 0 = every task once a round. Default: ${default}."`
	Useful         int      `default:"0" placeholder:"GROUPS" group:"draws" scope:"result" help:"Draw on until so many groups have rewards that differ. The others are stored too, with the flag zero_variance; they do not count. 0 = off. Default: ${default}."`
	MaxDraws       int      `default:"0" placeholder:"GROUPS" group:"draws" scope:"result" help:"Most groups to draw for --useful; 0 = eight times as many. Default: ${default}."`
	Grow           Pairs    `placeholder:"SAMPLES" group:"draws" scope:"result" help:"Begin each group with so many samples, and play the others only where they may differ. Also error= (most chance that one of those left out would have been the first to differ, 0.05). Default: all samples at once."`
	HeldOut        Pairs    `placeholder:"SPLIT" group:"draws" scope:"result" help:"Tasks of that split are never trained on, only evaluated: at the start, in between and at the end. Or share=X (so much of all tasks). Also every= (groups between two evaluations, 100), samples= (of each task, 1), temperature= and top-p= (else the run's). Their rows have that split (held_out with share=). Default: none."`
	PriorityColumn string   `placeholder:"NAME" group:"draws" scope:"result" help:"Column of the tasks with a whole number: the larger, the sooner it is drawn, and the more urgent its calls at the server. Holds all tasks in memory. Default: none."`
	DeadlineColumn string   `placeholder:"NAME" group:"draws" scope:"result" help:"Column of the tasks that says by when it is wanted: a time (RFC 3339), or how long after the run's start (90m, or seconds). What has not ended by then fails. Default: none."`
	TasksCommand   string   `placeholder:"COMMAND" group:"draws" scope:"result" help:"Shell command that writes tasks to its standard output, one JSON object a line, in the place of task files; it may never end (--limit). It runs as fast as they are drawn and ends with the run; a resumed run starts it again, with the number of rows it has in TRANCHE_TASKS_GIVEN, and drops rows that it has. Default: none."`

	// What one call and one episode may do.
	Samples             int            `short:"n" default:"1" placeholder:"N" group:"sampling" scope:"result" help:"Samples of every task (one group). Default: ${default}."`
	Oversample          float64        `default:"1" placeholder:"X" group:"sampling" scope:"result" help:"Begin so many times the samples of every task, rounded up to whole samples, keep those that end first and cut the others. What is kept is shorter than what the model says: the summary tells by how much. Default: ${default} (none)."`
	Temperature         *float64       `placeholder:"X" group:"sampling" scope:"result" help:"Sampling temperature, 0 or more. Default: not sent, the server decides."`
	TopP                *float64       `placeholder:"X" group:"sampling" scope:"result" help:"Nucleus sampling, over 0 to 1. Default: not sent."`
	TopK                *int           `placeholder:"N" group:"sampling" scope:"result" help:"Sample from the K likeliest tokens, where the server knows it. Default: not sent."`
	MinP                *float64       `placeholder:"X" group:"sampling" scope:"result" help:"Least probability relative to the likeliest token, 0 to 1. Default: not sent."`
	Stop                []string       `sep:"none" placeholder:"TEXT" group:"sampling" scope:"result" help:"Stop string; may be repeated. Default: none."`
	TemperatureSchedule string         `placeholder:"SPEC" group:"sampling" scope:"result" help:"Temperature by the number of the group: linear:FROM:TO:GROUPS, cosine:FROM:TO:GROUPS or steps:0=VALUE,GROUP=VALUE. Default: none, it stays."`
	TopPSchedule        string         `name:"top-p-schedule" placeholder:"SPEC" group:"sampling" scope:"result" help:"The same for --top-p. Default: none."`
	PromptVariant       PromptVariants `kong:"-" group:"sampling" scope:"result" help:"Prompts to explore with, in a settings file: a list of {name, system, prompt}; prompt holds {prompt} for the task's own text. Each group gets one by chance; the row's variant says which. Default: none."`
	SendSeed            bool           `group:"sampling" scope:"result" help:"Send a seed of its own with every call. Off: per-request seeds slow some engines and crash one."`
	MaxTokens           int            `default:"1024" placeholder:"TOKENS" group:"sampling" scope:"result" help:"Tokens one turn may generate; cut to the room left in the context. Default: ${default} tokens."`
	MaxEpisodeTokens    int            `default:"0" placeholder:"TOKENS" group:"sampling" scope:"result" help:"Tokens all turns of an episode together may generate; 0 = no bound. Default: ${default}."`
	MaxContext          int            `default:"0" placeholder:"TOKENS" group:"sampling" scope:"result" help:"Prompt and answer of one call together, a cap below the server's own limit; 0 = the server's. Default: ${default}."`
	MaxTurns            int            `default:"16" placeholder:"N" group:"sampling" scope:"result" help:"Model calls an episode may make; 0 = no bound. Default: ${default} calls."`
	MinUseful           int            `default:"8" placeholder:"TOKENS" group:"sampling" scope:"result" help:"Least room for an answer that is worth a call; with less the episode ends as context_full. Default: ${default} tokens."`
	Logprobs            bool           `default:"true" negatable:"" group:"sampling" scope:"result" help:"Ask for the sampled tokens' log-probabilities. Default: on."`
	TokenIDs            bool           `name:"token-ids" default:"true" negatable:"" group:"sampling" scope:"result" help:"Ask for token ids, where the server gives them. Default: on."`
	ExtraBody           Object         `placeholder:"JSON" group:"sampling" scope:"result" help:"JSON object of more request fields. They win over the ones above. Not taken: messages, model, tools, stream, n and max_tokens (use the keys of their own); a max_tokens in an endpoint's own extra-body only lowers the limit. Default: none."`

	// Tools and rewards.
	Tools          []string      `sep:"none" placeholder:"NAME" group:"tools" scope:"result" help:"Tool every task is offered: a built-in one (calculator, submit, python, bash, read_file, write_file), or one that the settings file defines with command-tool, http-tool or mcp-server (a server's name stands for all its tools); may be repeated. Default: what each task names."`
	CommandTool    CommandTools  `kong:"-" group:"tools" scope:"result" help:"Programs of the user's own as tools, in a settings file: a list of {name, description, parameters, run, dir, timeout, idempotent, stateless, env, output}. Default: none."`
	HTTPTool       HTTPTools     `kong:"-" name:"http-tool" group:"tools" scope:"result" help:"Web services as tools, in a settings file: a list of {name, description, parameters, url, method, headers, timeout, idempotent, stateless, max-bytes}. Default: none."`
	MCPServer      MCPServers    `kong:"-" name:"mcp-server" group:"tools" scope:"result" help:"MCP servers whose tools are offered, in a settings file: a list of {name, run or url, dir, env, headers, tools, per, idempotent, stateless, timeout, start-timeout}. Default: none."`
	Calls          Calls         `default:"api" placeholder:"FORM" group:"tools" scope:"result" help:"How the model calls tools: api (the server's tool calls), or written in its text as tool-call, fenced, python or tags; in a settings file also a map {format, blocks, output, prompt, stop}. See docs/tools.md. Default: ${default}."`
	Sandbox        SandboxSpec   `kong:"-" group:"tools" scope:"result" help:"Where python, bash, read_file and write_file work, in a settings file: a map {backend, memory, pids, disk, file-size, net, rootfs, rootfs-digest, require, modules, cpu, grace, max-memory, max-runs}. See docs/code-tools.md. Default: the back end ns, 512MiB, 64 processes, no network."`
	MaxObservation Bytes         `default:"16KiB" placeholder:"SIZE" group:"tools" scope:"result" help:"Most a tool's output may put into the context; the middle of longer output is cut. Default: ${default}."`
	ActionTimeout  time.Duration `default:"30s" placeholder:"TIME" group:"tools" scope:"result" help:"Time one tool call may take. Default: ${default}."`
	ActionWorkers  int           `default:"0" placeholder:"N" group:"tools" scope:"operation" help:"Tool calls that run at once; 0 = twice the cores. Default: ${default}."`
	Reward         RewardSpecs   `sep:"none" default:"auto" placeholder:"KIND" group:"tools" scope:"result" help:"How answers are graded: auto, exact, numeric, contains, regex, none, majority, group_length, or another kind of docs/rewards.md; repeated = several components, in YAML a list of specs. Default: ${default}."`
	RewardTotal    string        `enum:"weighted_sum,gate,product,minimum" default:"weighted_sum" group:"tools" scope:"result" help:"Rule that makes the reward of its components: weighted_sum (their mean by weight), gate (the same, 0 where one is below its threshold), product, minimum; none where one that is needed has no verdict. See docs/rewards.md. Default: ${default}."`
	Unscored       []string      `sep:"none" placeholder:"STOP" group:"tools" scope:"result" help:"Stop reason for which an episode is not graded but has no reward (null): length, context_full, max_turns, budget, unknown or other; may be repeated. Default: what was cut is graded as anything else."`
	ScoreTimeout   time.Duration `default:"30s" placeholder:"TIME" group:"tools" scope:"operation" help:"Time one grading may take; over it there is no verdict. Default: ${default}."`
	ScoreWorkers   int           `default:"0" placeholder:"N" group:"tools" scope:"operation" help:"Gradings that run at once, but for those that only wait for a server; more than the cores help graders that wait; 0 = one a core. Default: ${default}."`
	ScoreRetries   int           `default:"2" placeholder:"N" group:"tools" scope:"operation" help:"How often a grading is asked again that failed of something that may pass (a sandbox that died, a judge that answered 500); then there is no verdict. Default: ${default}."`

	// Which servers, and how hard.
	Endpoint     []Endpoint    `sep:"none" placeholder:"URL" group:"servers" scope:"operation" help:"OpenAI-compatible server, e.g. http://host:8000/v1; may be repeated. Default: the embedded simulated engine."`
	Model        string        `placeholder:"NAME" group:"servers" scope:"result" help:"Model to ask for. Default: the only one the server lists."`
	APIKeyEnv    string        `name:"api-key-env" placeholder:"NAME" group:"servers" scope:"operation" help:"NAME of the environment variable that holds the API key; the key itself is never a setting. Default: none is read."`
	CAFile       string        `name:"ca-file" placeholder:"FILE" group:"servers" scope:"operation" help:"PEM file of the certificate authorities to trust for https. Default: the system's."`
	Stream       bool          `group:"servers" scope:"operation" help:"Stream the answers: time to first token is measured, and a cut answer keeps its part. Off: cheaper on both sides."`
	Concurrency  int           `default:"0" placeholder:"CALLS" group:"servers" scope:"operation" help:"Calls in flight at once, an endpoint; 0 = the sequences the server says it runs at once, else 64. Default: ${default}."`
	OpenEpisodes int           `default:"0" placeholder:"N" group:"servers" scope:"operation" help:"Episodes open at once; 0 = twice the calls of all endpoints, sixteen times where they pad, at least 64. Default: ${default}."`
	KVBudget     int           `name:"kv-budget" default:"0" placeholder:"TOKENS" group:"servers" scope:"operation" help:"Hard KV budget of an endpoint, tokens: prompt + max_tokens of the calls in flight there never exceed it; 0 = none: episodes are admitted by what they are expected to need of the cache the server says it has. Default: ${default}."`
	Padded       int           `default:"0" placeholder:"ROWS" group:"servers" scope:"operation" help:"The servers pad: they take static batches of so many calls and wait for the longest. They then get whole batches of like calls, one call a row; where they go on from token ids, answers are cut where their batch ends and gone on with (see uncut), and a batch is one request where they take lists of prompts. A server that starts with the first call to come, without waiting for others, splits batches; where it cannot go on from ids it is better off without. An endpoint's own batching, rows and shapes win; 0 = they batch continuously. Default: ${default}."`
	Uncut        bool          `group:"servers" scope:"operation" help:"Make answers at one go also on servers that pad. Off: where such a server goes on from token ids, an answer without tools, stop strings or a seed is cut where its batch ends and gone on with in a later one, so that no batch waits for its longest."`
	Classes      []int         `placeholder:"TOKENS" group:"servers" scope:"operation" help:"Upper bounds of the length classes, tokens, rising, comma separated. Default: powers of two from 256 to 131072."`
	EarlyYield   bool          `group:"servers" scope:"operation" help:"Without tools: the answers expected to be the shortest go first, so that most rows come early. Off: the longest first, so that the last comes early. A quorum implies it."`
	Quorum       float64       `default:"1" placeholder:"SHARE" group:"servers" scope:"operation" help:"Cut what still runs when so great a share of the wanted episodes (tasks, samples, rounds) has ended well; 1 = all are waited for. Default: ${default}."`
	OnQuorum     string        `enum:"drop,defer" default:"drop" group:"servers" scope:"operation" help:"What becomes of episodes that --quorum or --oversample cut: drop (a row with status cancelled in failures/), or defer (played again, from the beginning, when all else has ended). Default: ${default}."`
	Hedge        float64       `default:"0" placeholder:"SHARE" group:"servers" scope:"operation" help:"Send a model call that takes far longer than usual a second time, to another endpoint, when nothing waits; the first answer stands. At most so many second calls for each call sent; 0 = none. Actions are never sent twice. Default: ${default}."`
	Priority     int           `default:"0" placeholder:"N" group:"servers" scope:"operation" help:"Urgency of this run's calls beside those of others at the same server: higher = sooner, below 0 = later, 0 = not sent. Each server is told in its own direction (vLLM serves the lower value first, SGLang the higher); one that has no priorities is told none, and the run says so. An endpoint's capabilities: {priority: low-first} says what its direction is. Default: ${default}."`
	Probe        string        `enum:"auto,quick,full" default:"auto" group:"servers" scope:"operation" help:"What is asked of the endpoints before the first episode: quick (who they are and what they say of themselves; no generation), full (also a few short generations that prove what they can do, as tranche probe does, in at most a minute), or auto (full, in at most 10s, and what is not known then stays unknown; quick for the embedded engine). At most 12 requests an endpoint; what an earlier session of the run asked is not asked again. What is known stands in endpoints/ of the run. Default: ${default}."`
	Exchange     string        `enum:"auto,ids,chat" default:"auto" group:"servers" scope:"operation" help:"How later turns of an episode go to the server: auto (as the exact token ids of the turn before and those of the new messages, where the server can, else as messages), ids (as ids from the first call on, and a call that cannot go so fails), or chat (always as messages; the server renders and tokenises all again). Only with --token-ids. Default: ${default}."`
	ServerIdle   time.Duration `default:"5s" placeholder:"TIME" group:"servers" scope:"operation" help:"How long the server keeps an idle connection; ours are closed sooner. Default: ${default} (uvicorn's)."`

	EngineSeed      int64   `default:"1" placeholder:"N" group:"engine" scope:"result" help:"Embedded engine: seed of its answers. Default: ${default}."`
	EngineSolveRate float64 `default:"0.7" placeholder:"SHARE" group:"engine" scope:"result" help:"Embedded engine: share of tasks it answers right, 0 to 1. Default: ${default}."`
	EngineSpeed     float64 `default:"0" placeholder:"X" group:"engine" scope:"operation" help:"Embedded engine: 1 = the pace of a real GPU, 10 = ten times that, 0 = no waiting. Default: ${default}."`

	// What may take how long, and when to give up.
	MaxAttempts       int           `default:"3" placeholder:"N" group:"limits" scope:"operation" help:"Attempts of one call, the first included. 429 and failed connections are the endpoint's and do not count: 429 alone goes on until --episode-timeout. Default: ${default}."`
	AttemptTimeout    time.Duration `default:"10m" placeholder:"TIME" group:"limits" scope:"operation" help:"Time one attempt may take from dispatch to last byte; in proportion more where a call may generate over 8192 tokens. Default: ${default}."`
	IdleTimeout       time.Duration `default:"2m" placeholder:"TIME" group:"limits" scope:"operation" help:"Time a running answer may be silent, signs of life that hold nothing of it apart; longer as --attempt-timeout. Default: ${default}."`
	EpisodeTimeout    time.Duration `default:"1h" placeholder:"TIME" group:"limits" scope:"operation" help:"Time a whole episode may take, longer as --attempt-timeout; 0 = no bound. Default: ${default}."`
	DrainTimeout      time.Duration `default:"30s" placeholder:"TIME" group:"limits" scope:"operation" help:"After ctrl-c: how long running episodes may still finish. Default: ${default}."`
	StopOnFailedShare float64       `default:"0.9" placeholder:"SHARE" group:"limits" scope:"operation" help:"Stop the run when more than this share of at least 100 episodes failed; 0 = never. Default: ${default}."`

	StopOnUnscoredShare float64 `default:"0.5" placeholder:"SHARE" group:"limits" scope:"operation" help:"Stop the run when graders failed on more than this share of at least 100 episodes that ended well; a task that states no answer is no such failure. 0 = never. Default: ${default}."`

	// How the dataset is written.
	Publish       string        `placeholder:"URL" group:"files" scope:"operation" help:"Bring the dataset into an object store too, part by part while it grows: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///PATH, with the credentials of the environment; see docs/object-stores.md. It is tried before the run begins, and never holds it up. Default: none."`
	KeepRaw       bool          `group:"files" scope:"operation" help:"Keep the last answer to every model call as it came (column raw), up to 4 MiB an answer and 16 MiB an episode. Of an answer that was cut with its batch that is the last part; batches go out call by call."`
	PartBytes     Bytes         `default:"64MiB" placeholder:"SIZE" group:"files" scope:"operation" help:"A part file is closed at this size (before compression). Default: ${default}."`
	RowGroupBytes Bytes         `default:"8MiB" placeholder:"SIZE" group:"files" scope:"operation" help:"A row group is closed at this size (before compression). Default: ${default}."`
	SmallParts    int           `default:"16" placeholder:"N" group:"files" scope:"operation" help:"So many small parts side by side (below half of --part-bytes) are made into one while the run goes on, and any two at its end; 0 = never. Who opens parts/ by a pattern while a run is written sees files come and go. Default: ${default}."`
	JournalSync   time.Duration `default:"5ms" placeholder:"TIME" group:"files" scope:"operation" help:"Finished episodes are made durable together, at most so far apart. Default: ${default}."`
	MaxPartAge    time.Duration `default:"5m" placeholder:"TIME" group:"files" scope:"operation" help:"A part is published at this age at the latest; the first ones come after 1s, 2s, 4s and so on. Default: ${default}."`
}

// Scopes of a key.
const (
	scopeResult    = "result"
	scopeOperation = "operation"
	scopeSession   = "session"
)

// key is one setting by name.
type key struct {
	name  string
	scope string
	index int
}

// keys lists every setting in the order of the struct; its names are the flags' names.
func keys() []key {
	t := reflect.TypeFor[Settings]()
	list := make([]key, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("name")
		if name == "" {
			name = kebab(f.Name)
		}
		list = append(list, key{name, f.Tag.Get("scope"), i})
	}
	return list
}

// kebab turns MaxTokens into max-tokens. Names with a run of capitals carry a name tag.
func kebab(s string) string {
	var b strings.Builder
	for i, r := range s {
		if r >= 'A' && r <= 'Z' {
			if i > 0 && (s[i-1] < 'A' || s[i-1] > 'Z') {
				b.WriteByte('-')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (s *Settings) field(k key) reflect.Value { return reflect.ValueOf(s).Elem().Field(k.index) }

// check reports every fault of the settings at once, one message each. It is not named Validate: kong would call that before the file is read.
func (s *Settings) check() error {
	f := &faults{}
	if len(s.Tasks) == 0 && s.TasksCommand == "" {
		f.add("tasks: no task file given; try examples/arithmetic/tasks.jsonl")
	}
	s.validateCounts(f)
	s.validateShares(f)
	s.validateTimes(f)
	s.validateServers(f)
	s.validateTail(f)
	s.validateSampler(f)
	s.validateFeed(f)
	s.checkPlaces(f)
	for i, spec := range s.Reward {
		if spec.Weight != nil && *spec.Weight < 0 {
			f.add("reward[%d]: weight: expected 0 or more, found %v", i, *spec.Weight)
		}
	}
	s.checkUnscored(f)
	s.Sandbox.check(f)
	_, err := s.Calls.format()
	f.at("", err)
	for _, stop := range s.Stop {
		if stop == "" {
			f.add("stop: a stop string must not be empty")
		}
	}
	return f.err()
}

func (s *Settings) validateFeed(f *faults) {
	if s.Feed != "" {
		checkAddress(f, "feed", s.Feed)
	}
	checkKeyName(f, "feed-key-env", s.FeedKeyEnv)
}

func (s *Settings) validateCounts(f *faults) {
	for _, c := range []struct {
		name  string
		value int
		least int
	}{
		{"samples", s.Samples, 1}, {"limit", s.Limit, 0}, {"offset", s.Offset, 0}, {"window", s.Window, 1}, {"rounds", s.Rounds, 1},
		{"max-tokens", s.MaxTokens, 1}, {"max-episode-tokens", s.MaxEpisodeTokens, 0}, {"max-context", s.MaxContext, 0},
		{"max-turns", s.MaxTurns, 0}, {"min-useful", s.MinUseful, 1}, {"concurrency", s.Concurrency, 0}, {"open-episodes", s.OpenEpisodes, 0},
		{"kv-budget", s.KVBudget, 0}, {"padded", s.Padded, 0}, {"max-attempts", s.MaxAttempts, 1}, {"action-workers", s.ActionWorkers, 0}, {"score-workers", s.ScoreWorkers, 0}, {"score-retries", s.ScoreRetries, 0},
		{"max-observation", int(s.MaxObservation), action.MinObservationBytes}, {"part-bytes", int(s.PartBytes), 1}, {"row-group-bytes", int(s.RowGroupBytes), 1},
	} {
		if c.value < c.least {
			f.add("%s: expected %d or more, found %d", c.name, c.least, c.value)
		}
	}
	for _, c := range []struct {
		name        string
		value, most Bytes
	}{{"part-bytes", s.PartBytes, storage.MostPartBytes}, {"row-group-bytes", s.RowGroupBytes, storage.MostRowGroupBytes}} {
		if c.value > c.most {
			f.add("%s: expected %v at most, found %v", c.name, c.most, c.value)
		}
	}
	if s.SmallParts < 0 || s.SmallParts == 1 {
		f.add("small-parts: expected 0 (never) or 2 and more, found %d", s.SmallParts)
	}
	if s.MaxContext > 0 && s.MinUseful >= s.MaxContext {
		f.add("min-useful: %d tokens leave no room for a prompt in max-context %d", s.MinUseful, s.MaxContext)
	}
	if s.TopK != nil && *s.TopK < -1 {
		f.add("top-k: expected -1 (off) or more, found %d", *s.TopK)
	}
	if _, err := ladderOf(s); err != nil {
		f.add("classes: %w", err)
	}
}

func (s *Settings) validateShares(f *faults) {
	within := func(name string, v *float64, low, high float64) {
		switch {
		case v == nil || *v >= low && *v <= high:
		case high == math.MaxFloat64:
			f.add("%s: expected %g or more, found %g", name, low, *v)
		default:
			f.add("%s: expected %g to %g, found %g", name, low, high, *v)
		}
	}
	within("temperature", s.Temperature, 0, math.MaxFloat64)
	within("top-p", s.TopP, 0, 1)
	within("min-p", s.MinP, 0, 1)
	within("engine-solve-rate", &s.EngineSolveRate, 0, 1)
	within("stop-on-failed-share", &s.StopOnFailedShare, 0, 1)
	within("stop-on-unscored-share", &s.StopOnUnscoredShare, 0, 1)
	if s.TopP != nil && *s.TopP == 0 {
		f.add("top-p: 0 keeps no token; use a value over 0, or leave it out")
	}
	if !(s.EngineSpeed >= 0) {
		f.add("engine-speed: expected 0 or more, found %g", s.EngineSpeed)
	}
}

func (s *Settings) validateTimes(f *faults) {
	for _, c := range []struct {
		name  string
		value time.Duration
		zero  bool
	}{
		{"attempt-timeout", s.AttemptTimeout, false}, {"idle-timeout", s.IdleTimeout, false}, {"episode-timeout", s.EpisodeTimeout, true},
		{"action-timeout", s.ActionTimeout, false}, {"score-timeout", s.ScoreTimeout, false}, {"drain-timeout", s.DrainTimeout, true},
		{"server-idle", s.ServerIdle, false}, {"journal-sync", s.JournalSync, true}, {"max-part-age", s.MaxPartAge, false},
	} {
		if c.value < 0 || c.value == 0 && !c.zero {
			f.add("%s: expected a time over 0, found %v", c.name, c.value)
		}
	}
	if s.JournalSync > storage.MostSyncInterval {
		f.add("journal-sync: expected %v at most, found %v", storage.MostSyncInterval, s.JournalSync)
	}
}

func (s *Settings) validateServers(f *faults) {
	checkKeyName(f, "api-key-env", s.APIKeyEnv)
	checkCAs(f, "ca-file", s.CAFile)
	seen := map[string]bool{}
	for i, e := range s.Endpoint {
		at := fmt.Sprintf("endpoint[%d]", i)
		checkURL(f, at, e.URL)
		if address, err := inference.Address(e.URL); err == nil { // else it has been said what is wrong
			if seen[address] {
				f.add("%s: %s is listed twice; give it a higher concurrency instead", at, e.URL)
			}
			seen[address] = true
		}
		checkKeyName(f, at+": api-key-env", e.APIKeyEnv)
		checkCAs(f, at+": ca-file", e.CAFile)
		if e.Context < 0 || e.KVTokens < 0 || e.Concurrency < 0 {
			f.add("%s: context, kv-tokens and concurrency must be 0 or more", at)
		}
		if err := inference.CheckOverrides(e.Capabilities); err != nil {
			f.add("%s: %w", at, err)
		}
		s.validateBatching(f, at, e)
	}
}

func (s *Settings) validateBatching(f *faults, at string, e Endpoint) {
	switch e.Batching {
	case "", batchContinuous, batchStatic, batchShaped:
	default:
		f.add("%s: batching: expected %s, %s or %s, found %q", at, batchContinuous, batchStatic, batchShaped, e.Batching)
		return
	}
	pads := e.Batching == batchStatic || e.Batching == batchShaped
	rows, _ := e.padded(s.Padded)
	switch {
	case e.Rows < 0:
		f.add("%s: rows: expected 1 or more, found %d", at, e.Rows)
	case pads && rows == 0:
		f.add("%s: rows: is missing; batching %s needs the number of calls of a batch", at, e.Batching)
	case rows > mostRows:
		f.add("%s: rows: expected at most %d, found %d", at, mostRows, rows)
	case rows > 0 && e.Concurrency > 0 && e.Concurrency < rows:
		f.add("%s: concurrency: %d calls at once are fewer than the %d rows of a padded batch; give fewer rows", at, e.Concurrency, rows)
	case e.Batching == batchContinuous && e.Rows > 0:
		f.add("%s: rows: %d, but batching continuous has none", at, e.Rows)
	}
	if rising := slices.IsSortedFunc(e.Shapes, func(a, b int) int { return a - b + 1 }); e.Shapes != nil && (e.Batching != batchShaped || !rising || len(e.Shapes) == 0 || e.Shapes[0] < 1) {
		f.add("%s: shapes: expected rising lengths in tokens, and batching shaped; found %v with batching %q", at, e.Shapes, e.Batching)
	}
	if e.Batching == batchShaped && len(e.Shapes) == 0 {
		f.add("%s: shapes: is missing; batching shaped needs the lengths that prompts are padded to", at)
	}
}

func checkURL(f *faults, at, raw string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil: // the URL may hold a password: not repeated
		f.add("%s: is no URL; expected e.g. http://host:8000/v1", at)
	case u.User != nil:
		f.add("%s: a user name or password in the URL would be stored; name a variable with api-key-env instead", at)
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		f.add("%s: expected a URL such as http://host:8000/v1 or unix:///run/server.sock, found %q", at, raw)
	}
}

func checkCAs(f *faults, at, file string) {
	if file == "" {
		return
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		f.add("%s: %w", at, err)
	case !info.Mode().IsRegular():
		f.add("%s: %s: expected a PEM file; this is no regular file", at, file)
	default:
		if _, err := inference.ReadCAs(file); err != nil {
			f.add("%s: %w", at, err)
		}
	}
}

// checkKeyName never repeats the value: it may be the key itself, put there by mistake.
func checkKeyName(f *faults, at, name string) {
	switch {
	case name == "":
	case !variableName.MatchString(name):
		f.add("%s: expected the NAME of an environment variable, e.g. OPENAI_API_KEY; the key itself must not stand here (the value given is not shown)", at)
	default:
		if v, ok := os.LookupEnv(name); !ok || v == "" {
			f.add("%s: the environment variable %s is not set", at, name)
		}
	}
}

// faults collects messages; err joins them.
type faults struct{ list []error }

func (f *faults) add(format string, args ...any) {
	f.list = append(f.list, fmt.Errorf(format, args...))
}
func (f *faults) err() error { return errors.Join(f.list...) }

// nearest returns the known name closest to a mistyped one, "" when none is close.
func nearest(name string, known []string) string {
	best, at := "", len(name)/3+2
	for _, k := range known {
		if d := distance(name, k); d < at {
			best, at = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// didYouMean is the tail of an "unknown" message.
func didYouMean(name string, known []string) string {
	if n := nearest(name, known); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	sorted := slices.Sorted(slices.Values(known))
	return "; known: " + strings.Join(sorted, ", ")
}
