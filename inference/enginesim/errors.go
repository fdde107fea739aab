package enginesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// apiError is an error answer in vLLM's form: {"error":{"message","type","param","code"}}.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

func badRequest(param, format string, args ...any) *apiError {
	e := &apiError{Message: fmt.Sprintf(format, args...), Type: "BadRequestError", Code: http.StatusBadRequest}
	if param != "" {
		e.Param = &param
	}
	return e
}

func unsupported(param string) *apiError {
	return badRequest(param, "%s is not supported by the simulated engine", param)
}

// malformedBody tells what is wrong with a body that is no such request.
func malformedBody(err error) *apiError {
	e := &apiError{Type: "Bad Request", Code: http.StatusBadRequest}
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &wrong):
		field := strings.TrimPrefix(wrong.Field, "knobs.") // how this package groups fields is nobody's business
		e.Message = fmt.Sprintf("1 validation error: body.%s: input should be a valid %s, got a JSON %s", field, wrong.Type, wrong.Value)
		e.Param = &field
	case errors.As(err, &syntax):
		e.Message = fmt.Sprintf("1 validation error: JSON decode error at byte %d: %v", syntax.Offset, syntax)
	case errors.As(err, &tooLarge):
		e.Message, e.Code = fmt.Sprintf("request body is over %d bytes", tooLarge.Limit), http.StatusRequestEntityTooLarge
	default:
		e.Message = "1 validation error: " + err.Error()
	}
	return e
}

func unknownModel(name string) *apiError {
	param := "model"
	return &apiError{Message: fmt.Sprintf("The model `%s` does not exist.", name), Type: "NotFoundError", Param: &param, Code: http.StatusNotFound}
}

// overflow is what a prompt that leaves no room for the wanted tokens gets. vLLM stops tokenising a text at the first token
// that is too many, so its count is a lower bound ("at least"); for prompts that came as ids it is exact.
func overflow(limit, wanted, prompt int, exact bool) *apiError {
	about := ""
	if !exact {
		about, prompt = "at least ", min(prompt, limit-wanted+1)
	}
	return badRequest("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %s%d input tokens, "+
		"for a total of %s%d tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=%d)",
		limit, wanted, about, prompt, about, prompt+wanted, prompt)
}

func writeError(w http.ResponseWriter, e *apiError) {
	writeJSON(w, e.Code, map[string]*apiError{"error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("enginesim: answer does not encode: %v", err)) // own types only: a bug here
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that is gone needs no answer
}
