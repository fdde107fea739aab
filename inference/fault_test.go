package inference

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"tranche/episode"
)

// What an attempt generated for nothing is the server's count, else that of the ids, else an estimate: where text came it is never nothing.
func TestGenerated(t *testing.T) {
	for name, c := range map[string]struct {
		event string
		want  int
	}{
		"nothing":         {`{"choices":[{"index":0,"delta":{"role":"assistant"}}]}`, 0},
		"a count":         {`{"choices":[{"index":0,"delta":{"content":"half"}}],"usage":{"prompt_tokens":9,"completion_tokens":20}}`, 20},
		"ids":             {`{"choices":[{"index":0,"delta":{"content":"half"},"token_ids":[1,2,3]}]}`, 3},
		"text alone":      {`{"choices":[{"index":0,"delta":{"content":"half an answer"}}]}`, 4},
		"a letter":        {`{"choices":[{"index":0,"delta":{"content":"h"}}]}`, 1},
		"reasoning":       {`{"choices":[{"index":0,"delta":{"reasoning_content":"so that"}}]}`, 2},
		"a count of zero": {`{"choices":[{"index":0,"delta":{"content":"half"}}],"usage":{"prompt_tokens":9,"completion_tokens":0}}`, 1},
		"llama's timings": {`{"choices":[{"index":0,"delta":{"content":"half"}}],"timings":{"prompt_n":9,"predicted_n":7}}`, 7},
	} {
		a := &answer{}
		if _, err := a.takeEvent([]byte(c.event)); err != nil {
			t.Fatal(err)
		}
		if got := a.generated(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestClassifyAnswers(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   episode.Class
		retry  bool
		after  time.Duration
		says   string // part of the cause
	}{
		"nested error": {400, nil, `{"error":{"message":"unknown parameter: foo","type":"invalid_request_error","param":"foo","code":null}}`,
			episode.ClassBadRequest, false, 0, "unknown parameter: foo"},
		"flat error":                        {400, nil, `{"object":"error","message":"bad top_p","type":"BadRequestError","param":null,"code":400}`, episode.ClassBadRequest, false, 0, "bad top_p"},
		"string error":                      {401, nil, `{"error":"Unauthorized"}`, episode.ClassAuth, false, 0, "Unauthorized"},
		"FastAPI detail":                    {422, nil, `{"detail":[{"loc":["body","n"],"msg":"extra fields not permitted"}]}`, episode.ClassBadRequest, false, 0, "extra fields not permitted"},
		"HTML":                              {502, nil, "<html><head><title>502 Bad Gateway</title><style>b{}</style></head><body><h1>502</h1><hr>nginx</body></html>", episode.ClassServerError, true, 0, "502 Bad Gateway 502 nginx"},
		"text":                              {500, nil, "Internal Server Error", episode.ClassServerError, true, 0, "Internal Server Error"},
		"empty":                             {500, nil, "", episode.ClassServerError, true, 0, "HTTP 500"},
		"wrapped by gateway":                {400, nil, `{"error":{"message":"{\"error\":{\"message\":\"no images\"}}"}}`, episode.ClassBadRequest, false, 0, "no images"},
		"forbidden":                         {403, nil, `{}`, episode.ClassAuth, false, 0, ""},
		"no such model":                     {404, nil, `{"error":{"message":"The model x does not exist","param":"model"}}`, episode.ClassNotFound, false, 0, "does not exist"},
		"redirect":                          {307, nil, "the server redirects to /v2", episode.ClassNotFound, false, 0, "/v2"},
		"429, seconds":                      {429, map[string]string{"Retry-After": "2"}, `{"error":{"message":"slow down"}}`, episode.ClassRateLimited, true, 2 * time.Second, "slow down"},
		"429, fraction":                     {429, map[string]string{"Retry-After": "0.5"}, `{}`, episode.ClassRateLimited, true, 500 * time.Millisecond, ""},
		"429, date":                         {429, map[string]string{"Retry-After": "Fri, 02 Jan 2026 03:04:35 GMT"}, `{}`, episode.ClassRateLimited, true, 30 * time.Second, ""},
		"429, date by a clock of their own": {429, map[string]string{"Retry-After": "Fri, 02 Jan 2026 03:14:35 GMT", "Date": "Fri, 02 Jan 2026 03:14:05 GMT"}, `{}`, episode.ClassRateLimited, true, 30 * time.Second, ""},
		"429, far date":                     {429, map[string]string{"Retry-After": "Fri, 02 Jan 2099 03:04:05 GMT"}, `{}`, episode.ClassRateLimited, true, 24 * time.Hour, ""},
		"429, past date":                    {429, map[string]string{"Retry-After": "Thu, 01 Jan 2026 00:00:00 GMT"}, `{}`, episode.ClassRateLimited, true, 0, ""},
		"429, nonsense":                     {429, map[string]string{"Retry-After": "soon"}, `{}`, episode.ClassRateLimited, true, 0, ""},
		"429, milliseconds":                 {429, map[string]string{"Retry-After-Ms": "250"}, `{}`, episode.ClassRateLimited, true, 250 * time.Millisecond, ""},
		"429, no money left":                {429, nil, `{"error":{"message":"quota","code":"insufficient_quota"}}`, episode.ClassRateLimited, false, 0, "quota"},
		"503, loading":                      {503, map[string]string{"Retry-After": "7"}, `{"error":{"message":"Loading model","code":503}}`, episode.ClassUnavailable, true, 7 * time.Second, "Loading model"},
		"425":                               {425, nil, ``, episode.ClassUnavailable, true, 0, ""},
		"504":                               {504, nil, ``, episode.ClassServerError, true, 0, ""},
		"501":                               {501, nil, `{"error":{"message":"not supported"}}`, episode.ClassNotFound, false, 0, "not supported"},
		"in-band, number":                   {200, nil, `{"error":{"message":"over","code":429}}`, episode.ClassRateLimited, true, 0, "over"},
		"in-band, vLLM":                     {200, nil, `{"error":{"message":"boom","type":"InternalServerError","code":500}}`, episode.ClassServerError, true, 0, "boom"},
		"in-band, no code":                  {200, nil, `{"error":"it broke"}`, episode.ClassServerError, true, 0, "it broke"},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			for k, v := range c.header {
				h.Set(k, v)
			}
			f := classify(failure{reach: reachAnswer, status: c.status, header: h, body: []byte(c.body)}, now)
			if f.Class != c.want || f.Retry != c.retry || f.After != c.after {
				t.Fatalf("class %s retry %v after %v, want %s %v %v", f.Class, f.Retry, f.After, c.want, c.retry, c.after)
			}
			if !strings.Contains(f.Cause.Error(), c.says) {
				t.Fatalf("cause %q does not say %q", f.Cause, c.says)
			}
		})
	}
}

func TestADeadEngineIsTold(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","code":500}}`: true,
		`{"object":"error","message":"Background loop has errored already.","code":500}`:                                                               true,
		`{"error":"EngineDeadError"}`:                              true,
		`{"error":{"message":"Internal server error","code":500}}`: false,
		`Internal Server Error`:                                    false,
	} {
		f := classify(failure{reach: reachAnswer, status: 500, body: []byte(body)}, time.Time{})
		if f.Died != want || f.Class != episode.ClassServerError || !f.Retry {
			t.Errorf("%s: died %v, class %s, retry %v", body, f.Died, f.Class, f.Retry)
		}
	}
	f := classify(failure{reach: reachAnswer, status: 400, body: []byte(`{"error":{"message":"bad prompt: EngineCore encountered an issue"}}`)}, time.Time{})
	if f.Died {
		t.Error("a refused request is taken for a dead engine")
	}
}

func TestClassifyErrors(t *testing.T) {
	broken := errors.New("connection reset by peer")
	for name, c := range map[string]struct {
		f     failure
		want  episode.Class
		retry bool
	}{
		"never connected":        {failure{reach: reachNothing, err: broken}, episode.ClassConnect, true},
		"broke before a byte":    {failure{reach: reachSent, err: io.EOF}, episode.ClassReset, true},
		"broke inside":           {failure{reach: reachAnswer, status: 200, err: io.ErrUnexpectedEOF}, episode.ClassTruncatedStream, true},
		"stream without end":     {failure{reach: reachAnswer, status: 200, err: errCutStream}, episode.ClassTruncatedStream, true},
		"attempt time is up":     {failure{reach: reachSent, err: &deadlineError{after: 1}}, episode.ClassTimeout, true},
		"time up while dialling": {failure{reach: reachNothing, err: &deadlineError{after: 1}}, episode.ClassTimeout, true},
		"gone quiet":             {failure{reach: reachAnswer, err: &deadlineError{after: 1, idle: true}}, episode.ClassIdle, true},
		"caller left":            {failure{reach: reachSent, err: &callerError{context.Canceled}}, episode.ClassCancelled, false},
		"caller's deadline":      {failure{reach: reachSent, err: &callerError{context.DeadlineExceeded}}, episode.ClassDeadline, false},
		"line over the cap":      {failure{reach: reachAnswer, err: &lineTooLongError{1}}, episode.ClassLineTooLong, false},
		"answer over the cap":    {failure{reach: reachAnswer, err: &tooLargeError{1}}, episode.ClassMalformed, false},
		"no JSON":                {failure{reach: reachAnswer, err: &malformedError{broken}}, episode.ClassMalformed, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := classify(c.f, time.Time{})
			if f.Class != c.want || f.Retry != c.retry || f.Cause == nil {
				t.Fatalf("class %s retry %v cause %v, want %s %v", f.Class, f.Retry, f.Cause, c.want, c.retry)
			}
		})
	}
}

func TestContextOverflowForms(t *testing.T) {
	for name, c := range map[string]struct {
		body          string
		limit, prompt int
	}{
		"OpenAI and old vLLM": {`{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5008 tokens (4908 in the messages, 100 in the completion). Please reduce the length.","type":"BadRequestError","code":400}}`, 4096, 4908},
		"OpenAI, prompt":      {`{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 10014 tokens.","code":"context_length_exceeded"}}`, 8192, 10014},
		"vLLM, max_tokens":    {`{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 100 input tokens (5000 > 4096 - 100)."}}`, 4096, 100},
		"vLLM 0.32, tokens":   {`{"error":{"message":"You passed 9000 input tokens and requested 100 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 8092 tokens.","param":"input_tokens"}}`, 8192, 9000},
		"vLLM 0.32, text":     {`{"error":{"message":"You passed 894 input characters and requested 4096 output tokens. However, the model's context length is only 4096 tokens","param":"input_text"}}`, 4096, 0},
		"vLLM, lower bound":   {`{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 8 output tokens and your prompt contains at least 8185 input tokens, for a total of at least 8193 tokens.","param":"input_tokens"}}`, 8192, 0},
		"vLLM 0.32, limit":    {`{"error":{"message":"max_tokens=20000 cannot be greater than max_model_len=16384. Please request fewer output tokens.","param":"max_tokens"}}`, 16384, 0},
		"vLLM, decoder":       {`{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096."}}`, 4096, 5000},
		"llama-server":        {`{"error":{"code":400,"message":"request (8916 tokens) exceeds the available context size (1024 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":8916,"n_ctx":1024}}`, 1024, 8916},
		"SGLang, prompt":      {`{"object":"error","message":"The input (5000 tokens) is longer than the model's context length (4096 tokens).","type":"BadRequestError","code":400}`, 4096, 5000},
		"SGLang, sum":         {`{"object":"error","message":"Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4000 tokens from the input messages and 1000 tokens for the completion.","code":400}`, 4096, 4000},
		"SGLang, length":      {`{"error":{"message":"Input length (9000 tokens) exceeds the maximum allowed length (8186 tokens). Use a shorter input or enable --allow-auto-truncate.","code":400}}`, 0, 9000},
		"TGI, sum":            {"{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 8000 `inputs` tokens and 1024 `max_new_tokens`\",\"error_type\":\"validation\"}", 8192, 8000},
		"TGI, prompt":         {"{\"error\":\"Input validation error: `inputs` must have less than 8192 tokens. Given: 9000\",\"error_type\":\"validation\"}", 0, 9000},
		"TensorRT-LLM":        {`{"object":"error","message":"The sum of prompt length (9000.0), query length (0) and max_tokens (1000) should not exceed max_num_tokens (8192)","type":"BadRequestError","code":400}`, 8192, 9000},
		"Gemini":              {`{"error":{"code":400,"message":"The input token count (9000) exceeds the maximum number of tokens allowed (8192).","status":"INVALID_ARGUMENT"}}`, 0, 9000},
		"LMDeploy":            {`{"message":"Length of input tokens (9000) exceeds the session_len 8192","type":"invalid_request_error","code":400,"object":"error"}`, 8192, 9000},
		"mlx":                 {`{"detail":"Prompt too long: 9000 > 8192"}`, 0, 9000},
		"plain text":          {`context length exceeded`, 0, 0},
		"xAI":                 {`{"error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}`, 131072, 537812},
	} {
		t.Run(name, func(t *testing.T) {
			f := classify(failure{reach: reachAnswer, status: 400, body: []byte(c.body)}, time.Time{})
			if f.Class != episode.ClassOverflow || f.Retry || f.Limit != c.limit || f.Prompt != c.prompt {
				t.Fatalf("class %s retry %v limit %d prompt %d, want overflow, %d, %d", f.Class, f.Retry, f.Limit, f.Prompt, c.limit, c.prompt)
			}
		})
	}
	for _, message := range []string{
		"max_tokens must be at least 1, got 0", "tool name exceeds maximum length of 64", "tool name exceeds the maximum allowed length (64)", "messages too long: array exceeds maximum of 2048 items",
		"'stop' : maximum length exceeded (4)", "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.",
	} {
		f := classify(failure{reach: reachAnswer, status: 400, body: []byte(`{"error":{"message":"` + message + `"}}`)}, time.Time{})
		if f.Class != episode.ClassBadRequest {
			t.Errorf("%s: class %s", message, f.Class)
		}
	}
}

func FuzzErrorBody(f *testing.F) {
	for _, s := range []string{`{"error":{"message":"m","code":400}}`, `{"error":"x"}`, `{"message":"m"}`, `{"detail":[{}]}`, "<html><style>", "", "null", `{"error":null}`, "\xff<", `[1]`} {
		f.Add(s, 400)
	}
	f.Fuzz(func(t *testing.T, body string, status int) {
		status = 300 + abs(status)%300
		out := classify(failure{reach: reachAnswer, status: status, body: []byte(body)}, time.Time{})
		if out.Class == "" || out.Cause == nil {
			t.Fatalf("no class or no cause for %q", body)
		}
		if n := len(out.Cause.Error()); n > maxSaid+200 {
			t.Fatalf("a cause of %d bytes", n)
		}
		if !utf8.ValidString(out.Cause.Error()) {
			t.Fatalf("cause %q is not valid UTF-8", out.Cause)
		}
	})
}
