package inference

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

func passing(route, body string) *episode.Call {
	c := call("sizes the call only")
	c.Request = &episode.Request{Route: route, Body: []byte(body)}
	return c
}

// Not one byte changes on the way out or back, however odd the JSON is.
func TestPassedBodiesAreUntouched(t *testing.T) {
	const out = ` {"seed":12345678901234567890, "a":1e400 , "a":1.10, "model":"any","input":"\ud800é", "x":{"z":1,"y":[ ]}} `
	const back = "{ \"object\":\"list\",\n \"error\": null, \"n\":0.1000, \"big\":12345678901234567890, \"usage\":{\"prompt_tokens\":7,\"total_tokens\":7} }"
	s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{"POST /v1/embeddings": fixed(200, back)}})
	r, err := open(t, s, nil).Generate(context.Background(), passing("/embeddings", out), 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Requests()[len(s.Requests())-1]; string(got.Body) != out || got.Path != "/v1/embeddings" || got.ID == "" {
		t.Errorf("the server got %s %q %s", got.Path, got.ID, got.Body)
	}
	if a := r.Answer; string(a.Body) != back || a.Status != 200 || a.ID == "" {
		t.Errorf("the answer is %+v", a)
	}
	if r.Usage.Prompt == nil || *r.Usage.Prompt != 7 || r.Usage.Completion != nil {
		t.Errorf("usage %+v", r.Usage)
	}
}

func TestPassedUsageOfResponses(t *testing.T) {
	const back = `{"object":"response","usage":{"input_tokens":11,"output_tokens":3,"input_tokens_details":{"cached_tokens":8},"total_tokens":14}}`
	s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{"POST /v1/responses": fixed(200, back)}})
	r, err := open(t, s, nil).Generate(context.Background(), passing("/responses", `{}`), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if u := r.Usage; u.Prompt == nil || *u.Prompt != 11 || u.Completion == nil || *u.Completion != 3 || u.Cached == nil || *u.Cached != 8 {
		t.Errorf("usage %+v", u)
	}
}

// What the server said to a refused request is kept whole; what it never said is not made up.
func TestPassedRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		class  episode.Class
		retry  bool
		answer bool
	}{
		"wrong request":         {400, `{"error":{"message":"no","code":400}}`, episode.ClassBadRequest, false, true},
		"overflow is a refusal": {400, `{"error":{"message":"This model's maximum context length is 128 tokens. However, your request has 200 input tokens.","code":400}}`, episode.ClassBadRequest, false, true},
		"no such route":         {404, `{"detail":"Not Found"}`, episode.ClassNotFound, false, true},
		"busy":                  {429, `{"error":"later"}`, episode.ClassRateLimited, true, true},
		"broken server":         {500, `Internal Server Error`, episode.ClassServerError, true, true},
		"an error with 200":     {200, `{"error":{"message":"bad","code":400}}`, episode.ClassBadRequest, false, true},
		"no JSON":               {200, `<html>`, episode.ClassMalformed, true, false},
		"cut":                   {200, `{"object":"li`, episode.ClassMalformed, true, false},
		"a list":                {200, `[1]`, episode.ClassMalformed, true, false},
		"nothing":               {200, ``, episode.ClassMalformed, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := mock.New(t, mock.Config{Routes: map[string]mock.Handler{"POST /v1/embeddings": fixed(c.status, c.body)}})
			_, err := open(t, s, nil).Generate(context.Background(), passing("/embeddings", `{}`), 1, 0)
			var f *episode.Fault
			if !errors.As(err, &f) || f.Class != c.class || f.Retry != c.retry || f.Limit != 0 {
				t.Fatalf("%v (%+v), want class %s, retry %v", err, f, c.class, c.retry)
			}
			if (f.Answer != nil) != c.answer || c.answer && (f.Answer.Status != c.status || string(f.Answer.Body) != c.body || f.Answer.ID == "") {
				t.Errorf("answer %+v", f.Answer)
			}
		})
	}
}

func TestWithModel(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"in the place of another": {`{"a":1, "model" : "x" ,"b":[1.0]}`, `{"a":1, "model" : "m\"" ,"b":[1.0]}`},
		"of every one":            {`{"model":"x","model":null}`, `{"model":"m\"","model":"m\""}`},
		"none":                    {`{ "a":1e5}`, `{"model":"m\"", "a":1e5}`},
		"empty":                   {`{}`, `{"model":"m\""}`},
		"not an inner one":        {`{"x":{"model":"y"},"model":3}`, `{"x":{"model":"y"},"model":"m\""}`},
		"first":                   {` {"model":"x"} `, ` {"model":"m\""} `},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := withModel([]byte(c.body), `m"`)
			if err != nil || string(got) != c.want {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
		})
	}
	if _, err := withModel([]byte(`[1]`), "m"); err == nil {
		t.Error("a list was taken")
	}
}

// Whatever JSON object comes in, one with that model goes out and no other field is another.
func FuzzWithModel(f *testing.F) {
	f.Add([]byte(`{"a":1, "model" : "x" ,"b":[1.0]}`))
	f.Add([]byte(`{"model":{}}`))
	f.Add([]byte(" {\n}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var was map[string]json.RawMessage
		if json.Unmarshal(body, &was) != nil || was == nil {
			t.Skip()
		}
		out, err := withModel(body, "m")
		if err != nil {
			t.Fatal(err)
		}
		var is map[string]json.RawMessage
		if err := json.Unmarshal(out, &is); err != nil {
			t.Fatalf("%q became %q: %v", body, out, err)
		}
		if string(is["model"]) != `"m"` {
			t.Fatalf("%q became %q", body, out)
		}
		was["model"] = is["model"]
		if len(is) != len(was) {
			t.Fatalf("%q became %q", body, out)
		}
		for name, v := range was {
			if !bytes.Equal(is[name], v) {
				t.Fatalf("%q became %q: field %q", body, out, name)
			}
		}
	})
}
