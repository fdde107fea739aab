package taskfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tranche/episode"
)

// TestPublicDataSets reads every task-like public data set whole, with the templates a user would write.
func TestPublicDataSets(t *testing.T) {
	dir := dataDir(t)
	const first = `{{(index (index .question 0) 0).content}}`
	for _, c := range []struct {
		path       string
		tpl        Templates
		skip       bool
		tasks, bad int64
		noAnswer   int64
		wantFirst  string // how the first prompt begins
		wantAnswer string // the first answer
		wantID     string
	}{
		{path: "tasks-gsm8k/test.first660.jsonl", tpl: Templates{Prompt: "{{.question}}", Answer: `{{.answer | afterLast "####"}}`},
			tasks: 660, wantFirst: "Janet’s ducks lay 16 eggs per day.", wantAnswer: "18"},
		{path: "tasks-gsm8k/train.first2500.jsonl", tpl: Templates{Prompt: "{{.question}}", Answer: `{{.answer | afterLast "####"}}`},
			tasks: 2500, wantFirst: "Natalia sold clips to 48", wantAnswer: "72"},
		{path: "tasks-humaneval/humaneval.first82.jsonl", tpl: Templates{ID: "{{.task_id}}"},
			tasks: 82, noAnswer: 82, wantFirst: "from typing import List\n", wantID: "HumanEval/0"},
		{path: "tasks-mbpp/mbpp.part.jsonl", tpl: Templates{ID: "mbpp/{{.task_id}}", Prompt: "{{.text}} Your code should pass:\n{{join \"\\n\" .test_list}}"},
			tasks: 724, noAnswer: 724, wantFirst: "Write a function to find the minimum cost path", wantID: "mbpp/1"},
		{path: "tasks-ifeval/ifeval.first271.jsonl", tpl: Templates{ID: "{{.key}}", DataSource: "ifeval"},
			tasks: 271, noAnswer: 271, wantFirst: "Write a 300+ word summary", wantID: "1000"},
		{path: "tasks-bbh/bbh.firsthalf.jsonl", tpl: Templates{ID: "{{.task}}-{{.i}}", Prompt: "{{.input}}", Answer: "{{.target}}", DataSource: "bbh/{{.task}}"},
			skip: true, bad: 1, tasks: 3255, wantFirst: "", wantID: "boolean_expressions-0"},
		{path: "tasks-bfcl/BFCL_v4_simple_python.first200.jsonl", tpl: Templates{Prompt: first},
			tasks: 200, noAnswer: 200, wantFirst: "Find the area of a triangle", wantID: "simple_python_0"},
		{path: "tasks-bfcl/BFCL_v4_parallel.first100.jsonl", tpl: Templates{Prompt: first}, tasks: 100, noAnswer: 100, wantID: "parallel_0"},
		{path: "tasks-bfcl/BFCL_v4_multi_turn_base.first100.jsonl", tpl: Templates{Prompt: first},
			tasks: 100, noAnswer: 100, wantFirst: "Move 'final_report.pdf'", wantID: "multi_turn_base_0"},
		{path: "tasks-cruxeval/cruxeval.first400.jsonl", tpl: Templates{Prompt: "{{.code}}\n\nWhat does f({{.input}}) return?", Answer: "{{.output}}"},
			tasks: 400, wantFirst: "def f(nums):", wantAnswer: "[(4, 1), (4, 1), (4, 1), (4, 1), (2, 3), (2, 3)]", wantID: "sample_0"},
		{path: "tasks-tau2/retail.tasks.first57.jsonl", tpl: Templates{Prompt: "{{.user_scenario.instructions.reason_for_call}}"},
			tasks: 57, noAnswer: 57, wantFirst: "You received your order #W2378156", wantID: "0"},
		{path: "openai-batch/aibrix_sample_job_input.jsonl", tasks: 10, noAnswer: 10, wantFirst: "You are a helpful assistant.", wantID: "request-1"},
		{path: "openai-batch/vllm_example_batch.jsonl", tasks: 2, noAnswer: 2, wantFirst: "You are a helpful assistant.", wantID: "request-1"},
	} {
		t.Run(c.path, func(t *testing.T) {
			cfg := Config{Paths: []string{filepath.Join(dir, c.path)}, Templates: c.tpl, SkipBad: c.skip}
			rep := check(t, cfg)
			if rep.Tasks != c.tasks || rep.Bad.Rows != c.bad || rep.NoAnswer != c.noAnswer || rep.Duplicates != 0 {
				t.Errorf("%d tasks, %d bad, %d without answer, %d duplicates; want %d, %d, %d, 0",
					rep.Tasks, rep.Bad.Rows, rep.NoAnswer, rep.Duplicates, c.tasks, c.bad, c.noAnswer)
			}
			if got := rep.First.Messages[0].Text(); !strings.HasPrefix(got, c.wantFirst) {
				t.Errorf("the first prompt is %q", got)
			}
			if c.wantAnswer != "" && *rep.First.Answer != c.wantAnswer {
				t.Errorf("the first answer is %q, want %q", *rep.First.Answer, c.wantAnswer)
			}
			if c.wantID != "" && rep.First.ID != c.wantID {
				t.Errorf("the first id is %q, want %q", rep.First.ID, c.wantID)
			}
			if got := int64(len(readAll(t, cfg))); got != c.tasks {
				t.Errorf("the reader gave %d tasks", got)
			}
		})
	}
}

// TestNothingOfAPublicRowIsLost holds each row of the open-ended data sets against its task: every column is there.
func TestNothingOfAPublicRowIsLost(t *testing.T) {
	dir := dataDir(t)
	path := filepath.Join(dir, "tasks-bfcl", "BFCL_v4_multi_turn_base.first100.jsonl")
	tasks := readAll(t, Config{Paths: []string{path}, Templates: Templates{Prompt: `{{(index (index .question 0) 0).content}}`}})
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
		var row map[string]json.RawMessage
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		delete(row, "id")
		want, err := encode(row)
		if err != nil {
			t.Fatal(err)
		}
		if want, err = canonical(want); err != nil || string(want) != string(tasks[i].Extra) {
			t.Fatalf("line %d: extra\n%.200s\nwant\n%.200s", i+1, tasks[i].Extra, want)
		}
	}
}

func TestBatchFileOfSeveralKindsNamesThoseThatAreNoChats(t *testing.T) {
	path := filepath.Join(dataDir(t), "openai-batch", "vllm_readme_requests.jsonl")
	got := refused(t, Config{Paths: []string{path}})
	for _, want := range []string{
		`vllm_readme_requests.jsonl:3: field "url": expected "/v1/chat/completions", found "/v1/embeddings": only chat requests can be run`,
		`vllm_readme_requests.jsonl:6: field "url": expected "/v1/chat/completions", found "/v1/score": only chat requests can be run`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing %q in\n%s", want, got)
		}
	}
}

// TestRecordedUploadsAreTasks reads the files that real users uploaded to the OpenAI batch API, out of the recorded requests.
func TestRecordedUploadsAreTasks(t *testing.T) {
	f, err := os.Open(filepath.Join(dataDir(t), "openai-batch", "openai_batch_api_flows.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	uploads := 0
	for lines.Scan() {
		var step struct {
			URL  string `json:"url"`
			Body string `json:"request_body"`
		}
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(step.Body, "custom_id") {
			continue
		}
		uploads++
		cfg := Config{Paths: []string{file(t, "up.jsonl", step.Body)}, Format: FormatBatch}
		tasks := readAll(t, cfg)
		if rows := len(strings.Split(strings.TrimSpace(step.Body), "\n")); len(tasks) != rows {
			t.Errorf("%d tasks of %d rows", len(tasks), rows)
		}
		for _, task := range tasks {
			if !strings.Contains(string(task.Extra), `"model":"gpt-`) {
				t.Errorf("task %s lost its model: %s", task.ID, task.Extra)
			}
		}
	}
	if uploads < 5 {
		t.Errorf("%d uploads found, want 5 or more", uploads)
	}
}

// yamlText reads one text value out of an example's YAML, which holds plain single-quoted lines and one block.
func yamlText(t testing.TB, text, key string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		v, ok := strings.CutPrefix(line, key+": ")
		if !ok {
			continue
		}
		if v != "|-" {
			return strings.Trim(v, "'")
		}
		var block []string
		for _, l := range lines[i+1:] {
			if l != "" && !strings.HasPrefix(l, "  ") {
				break
			}
			block = append(block, strings.TrimPrefix(l, "  "))
		}
		return strings.TrimRight(strings.Join(block, "\n"), "\n")
	}
	t.Fatalf("no key %s", key)
	return ""
}

// TestGSM8KExamplesGiveRightPromptsAndAnswers holds the templates of both example configs against answers that come from another
// file of the data set, in another notation.
func TestGSM8KExamplesGiveRightPromptsAndAnswers(t *testing.T) {
	dir := dataDir(t)
	type solution struct {
		Question    string `json:"question"`
		GroundTruth string `json:"ground_truth"`
	}
	var want []solution
	raw, err := os.ReadFile(filepath.Join(dir, "tasks-gsm8k", "example_model_solutions.first660.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		var s solution
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		want = append(want, s)
	}
	for _, name := range []string{"run.yaml", "fewshot.yaml"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "examples", "gsm8k", name))
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{Paths: []string{filepath.Join(dir, "tasks-gsm8k", "test.first660.jsonl")},
				Templates: Templates{Prompt: yamlText(t, string(text), "prompt"), Answer: yamlText(t, string(text), "answer")}}
			tasks := readAll(t, cfg)
			if len(tasks) != 660 || len(want) != 660 {
				t.Fatalf("%d tasks and %d solutions, want 660 each", len(tasks), len(want))
			}
			for i, task := range tasks {
				_, truth, _ := strings.Cut(want[i].GroundTruth, "\nA: ")
				if task.Answer == nil || *task.Answer != strings.TrimSpace(truth) {
					t.Errorf("row %d: answer %v, want %q", i, task.Answer, truth)
				}
				if !strings.Contains(task.Messages[0].Text(), want[i].Question) {
					t.Errorf("row %d: the prompt lacks the question", i)
				}
			}
		})
	}
}

// TestFewShotAnswersAreRight checks that what a config shows as solved is solved.
func TestFewShotAnswersAreRight(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "gsm8k", "fewshot.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	prompt := yamlText(t, string(text), "prompt")
	if n := strings.Count(prompt, "\n#### "); n != 4 || !strings.HasSuffix(prompt, "Question: {{.question}}\nAnswer:") {
		t.Errorf("%d solved problems; the prompt ends %q", n, prompt[len(prompt)-40:])
	}
	for _, block := range strings.Split(prompt, "\n\n")[:4] {
		_, final, _ := strings.Cut(block, "\n#### ")
		for _, step := range equations(block) {
			if err := holds(step); err != nil {
				t.Errorf("%s: %v", step, err)
			}
		}
		steps := equations(block)
		if last := steps[len(steps)-1]; !strings.HasSuffix(last, "= "+final) {
			t.Errorf("the last step %q does not give the answer %s", last, final)
		}
	}
}

func TestArithmeticExample(t *testing.T) {
	cfg := Config{Paths: []string{filepath.Join("..", "..", "examples", "arithmetic", "tasks.jsonl")}}
	tasks := readAll(t, cfg)
	if len(tasks) != 40 {
		t.Fatalf("%d tasks, want 40", len(tasks))
	}
	sources := map[string]int{}
	for _, task := range tasks {
		sources[task.DataSource]++
		if string(task.Tools) != `["calculator","submit"]` || task.Style != "numeric" || task.EnvClass != "arithmetic" || task.Extra != nil {
			t.Errorf("task %s: %s", task.ID, flat(task))
		}
		expr, ok := strings.CutPrefix(task.Messages[0].Text(), "What is ")
		expr, rest, _ := strings.Cut(expr, "?")
		if !ok || rest != " Use the calculator, then submit the result." || task.Messages[0].Role != episode.RoleUser {
			t.Errorf("task %s: prompt %q", task.ID, task.Messages[0].Text())
		}
		if err := holds(expr + " = " + *task.Answer); err != nil {
			t.Errorf("task %s: %v", task.ID, err)
		}
	}
	if sources["arithmetic/easy"] != 20 || sources["arithmetic/hard"] != 20 {
		t.Errorf("sources %v", sources)
	}
}
