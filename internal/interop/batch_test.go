package interop

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBatchReadByOpenAI reads the files of a batch with the official client's types.
func TestBatchReadByOpenAI(t *testing.T) {
	python(t)
	addr := engine(t, "--speed", "0")
	dir := t.TempDir()
	var in strings.Builder
	failed := 0
	for i := range 40 {
		id, err := json.Marshal(fmt.Sprintf("no. %d \u2028 – \"%d\"", i, i))
		if err != nil {
			t.Fatal(err)
		}
		url, body := "/v1/chat/completions", `{"model":"sim","max_tokens":20,"logprobs":true,"messages":[{"role":"user","content":"What is 17 + 25?"}]}`
		switch i % 5 {
		case 1:
			url, body = "/v1/completions", `{"model":"sim","prompt":"Once","max_tokens":8}`
		case 2:
			url, body = "/v1/embeddings", `{"model":"sim","input":["a text","another"]}`
		case 3:
			url, body = "/v1/responses", `{"model":"sim","input":"What is 1 + 1?"}`
		case 4:
			url, body = "/v1/embeddings", `{"model":"no-such-model","input":"x"}`
			failed++
		}
		fmt.Fprintf(&in, "{\"custom_id\": %s, \"method\": \"POST\", \"url\": %q, \"body\": %s}\n", id, url, body)
	}
	input := write(t, filepath.Join(dir, "in.jsonl"), in.String())
	output, errors := filepath.Join(dir, "out.jsonl"), filepath.Join(dir, "errors.jsonl")
	_, stderr, exit := command(t, time.Minute, "batch", input, "-o", output, "--errors", errors, "--model", "sim", "--endpoint", "http://"+addr+"/v1")
	if exit != 5 {
		t.Fatalf("exit %d, want 5: some lines fail\n%s", exit, tail(stderr))
	}
	f := runPython(t, "openai_batch.py", input, output, errors)
	f.want(t, map[string]float64{"answered": float64(40 - failed), "failed": float64(failed)})
	t.Logf("openai %v: %v checks", f["openai"], f["checks"])
}
