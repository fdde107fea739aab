package enginesim

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
)

// embedDims is the length of an embedding where the request asks for none.
const embedDims = 64

type embeddingRequest struct {
	Model      *string     `json:"model"`
	Input      promptField `json:"input"`
	Encoding   string      `json:"encoding_format"`
	Dimensions *int        `json:"dimensions"`
}

func embeddingFields() []string {
	return []string{"model", "input", "encoding_format", "dimensions", "user"}
}

type embeddingReply struct {
	ID      string      `json:"id"`
	Object  string      `json:"object"`
	Created int64       `json:"created"`
	Model   string      `json:"model"`
	Data    []embedding `json:"data"`
	Usage   usage       `json:"usage"`
}

type embedding struct {
	Index  int    `json:"index"`
	Object string `json:"object"`
	Vector any    `json:"embedding"` // []float32, or base64 text of them
}

// embed serves POST /v1/embeddings. The vectors are drawn from the ids: equal inputs have equal ones, and they mean nothing else. What
// it takes is the prefill of its inputs, which the steps do for one token each.
func (e *Engine) embed(w http.ResponseWriter, r *http.Request, body []byte) error {
	var req embeddingRequest
	if err := e.parse(body, &req, embeddingFields()...); err != nil {
		return err
	}
	if err := e.knows(req.Model); err != nil {
		return err
	}
	dims := embedDims
	if req.Dimensions != nil {
		dims = *req.Dimensions
	}
	switch n := len(req.Input.texts) + len(req.Input.ids); {
	case n == 0 || n > maxPrompts:
		return badRequest("input", "input holds %d prompts, expected 1 to %d", n, maxPrompts)
	case dims < 1 || dims > 1<<14:
		return badRequest("dimensions", "dimensions must be 1 to %d, got %d", 1<<14, dims)
	case req.Encoding != "" && req.Encoding != "float" && req.Encoding != "base64":
		return badRequest("encoding_format", "encoding_format must be float or base64, got %q", req.Encoding)
	}
	inputs, err := e.prompts(req.Input)
	if err != nil {
		return err
	}
	one := 1
	var k knobs
	answers := make([]*answer, len(inputs))
	for i, ids := range inputs {
		l, err := e.limits(&k, ids, &one, 0, req.Input.ids != nil)
		if err != nil {
			return err
		}
		answers[i] = e.policy.compose(ids, 0, want{}, l)
	}
	c := e.submit(answers, &k)
	defer e.cancel(c)
	if err := e.finished(r.Context(), c); err != nil {
		return err
	}
	head := e.head("embd-", r, c)
	out := embeddingReply{ID: head.id, Object: "list", Created: head.created, Model: e.config.Model, Usage: e.usage(c, make([]int, len(answers)), len(answers))}
	for i, ids := range inputs {
		out.Data = append(out.Data, embedding{i, "embedding", encoded(vector(ids, uint64(e.config.Seed), dims), req.Encoding)})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// vector draws a direction from ids: length 1, every direction as likely.
func vector(ids []int32, seed uint64, dims int) []float32 {
	d := newDice(mix(hashTokens(seed, ids)))
	v := make([]float32, dims)
	sum := 0.0
	for i := range v {
		x := d.NormFloat64()
		v[i] = float32(x)
		sum += x * x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

func encoded(v []float32, encoding string) any {
	if encoding != "base64" {
		return v
	}
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(raw)
}
