package inference

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	openai "github.com/sashabaranov/go-openai"

	"tranche/episode"
	"tranche/internal/later"
)

// reach is how far an attempt got.
type reach int

const (
	reachNothing reach = iota // no connection: the request was not sent
	reachSent                 // a connection was there and took some or all of the request
	reachAnswer               // the status line came
)

// failure is everything known of an attempt that brought no reply.
type failure struct {
	reach  reach
	status int         // HTTP status; 200 for an error inside an answer that had begun well; 0 before any
	header http.Header // of the answer; nil before any
	body   []byte      // what the server said about the error; nil when it said nothing
	err    error       // what went wrong on our side of the wire; nil when the server's word is all there is
	stream bool        // the answer came in pieces
	answer *answer     // what had come before the failure; nil when nothing

	wordings []Wording // how this server says that a prompt is too long, as far as it has said so
	limit    int       // its context limit, tokens; 0 = not known
	sent     []byte    // the request's body; nil = not known
}

// Why an attempt was ended from this side; they come out as the context's cause.
type deadlineError struct {
	after time.Duration
	idle  bool
}

func (e *deadlineError) Error() string {
	if e.idle {
		return fmt.Sprintf("no byte came for %v (IdleTimeout)", e.after)
	}
	return fmt.Sprintf("no whole answer within %v (AttemptTimeout)", e.after)
}

// callerError says that the caller's context ended.
type callerError struct{ err error }

func (e *callerError) Error() string { return "stopped by the caller: " + e.err.Error() }
func (e *callerError) Unwrap() error { return e.err }

// malformedError is an answer that is not what was asked for.
type malformedError struct{ err error }

func (e *malformedError) Error() string { return "the answer cannot be read: " + e.err.Error() }
func (e *malformedError) Unwrap() error { return e.err }

// refusal is what a server said, as an error. It unwraps to go-openai's APIError.
type refusal struct {
	status int
	said   openai.APIError
}

func (r *refusal) Error() string {
	head := "an error inside the answer"
	if r.status != 0 && r.status != http.StatusOK {
		head = strings.TrimSpace(fmt.Sprintf("HTTP %d %s", r.status, http.StatusText(r.status)))
	}
	if r.said.Message == "" {
		return head
	}
	return head + ": " + r.said.Message
}

func (r *refusal) Unwrap() error { return &r.said }

// classify turns a failure into a fault. It is a pure function; now serves dates in Retry-After.
func classify(f failure, now time.Time) *episode.Fault {
	out := &episode.Fault{Stage: episode.StageModel, Cause: f.err}
	if f.answer != nil {
		out.Partial, out.Wasted = f.answer.said(), f.answer.generated()
	}
	if f.err != nil {
		out.Class, out.Retry = classOfError(f)
		return out
	}
	said := readRefusal(f.body)
	status := f.status
	if status == http.StatusOK {
		status = inBandStatus(said)
	}
	out.Cause = &refusal{status: f.status, said: said}
	out.Class, out.Retry = classOfStatus(status, said)
	out.Died = status >= 500 && engineDead(said)
	out.Refused = refusesAll(out)
	switch limit, prompt, ok := f.overflow(status, said); {
	case ok:
		out.Class, out.Retry, out.Refused, out.Limit, out.Prompt = episode.ClassOverflow, false, false, limit, prompt
	case toolUseFailed(said):
		out.Class, out.Retry, out.Refused = episode.ClassToolUse, true, false
	}
	if out.Retry {
		out.After = later.Asked(f.header, now)
	}
	return out
}

// refusesAll reports a refusal that the next call would get as well.
func refusesAll(f *episode.Fault) bool {
	return f.Class == episode.ClassAuth || f.Class == episode.ClassNotFound || f.Class == episode.ClassRateLimited && !f.Retry
}

// infinite reports an answer that the server made and could not write: a logprob of minus infinity is no JSON number (vLLM, SGLang: Python's json).
func (f *failure) infinite() bool {
	return f.err == nil && f.status >= 500 && bytes.Contains(bytes.ToLower(f.body), []byte("out of range float values"))
}

// toolUseFailed reports a refusal of what the model wrote (Groq): no fault of the request, and another sample may do. What was written comes with it.
func toolUseFailed(said openai.APIError) bool { return said.Code == "tool_use_failed" }

// deathWords are what servers write when the engine behind them is dead, in small letters: vLLM, new and old.
var deathWords = [...]string{"enginecore encountered an issue", "enginedeaderror", "engine is dead", "engine loop has died", "background loop has errored"}

// engineDead reports a server that says its engine is dead: everything in flight is lost, and what comes after it too.
func engineDead(said openai.APIError) bool {
	message := strings.ToLower(said.Message + " " + said.Type)
	return slices.ContainsFunc(deathWords[:], func(w string) bool { return strings.Contains(message, w) })
}

func classOfError(f failure) (class episode.Class, retry bool) {
	var (
		deadline  *deadlineError
		caller    *callerError
		malformed *malformedError
		line      *lineTooLongError
		large     *tooLargeError
	)
	switch err := f.err; {
	case errors.As(err, &caller) && errors.Is(caller.err, context.DeadlineExceeded):
		return episode.ClassDeadline, false
	case errors.As(err, &caller):
		return episode.ClassCancelled, false
	case errors.As(err, &deadline) && deadline.idle:
		return episode.ClassIdle, true
	case errors.As(err, &deadline):
		return episode.ClassTimeout, true
	case errors.As(err, &line):
		return episode.ClassLineTooLong, false
	case errors.As(err, &large):
		return episode.ClassMalformed, false
	case errors.As(err, &malformed):
		return episode.ClassMalformed, true
	case f.reach == reachNothing:
		return episode.ClassConnect, !badCertificate(err)
	case f.reach == reachSent:
		return episode.ClassReset, true
	}
	return episode.ClassTruncatedStream, true // whole answers that break off too: part of an answer came
}

// badCertificate reports errors that no second try will mend.
func badCertificate(err error) bool {
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError // https spoken to an http port
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &record)
}

func classOfStatus(status int, said openai.APIError) (class episode.Class, retry bool) {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusPaymentRequired:
		return episode.ClassAuth, false
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		return episode.ClassNotFound, false
	case http.StatusRequestTimeout:
		return episode.ClassTimeout, true
	case http.StatusTooManyRequests:
		return episode.ClassRateLimited, said.Code != "insufficient_quota" // no waiting fills an account
	case http.StatusServiceUnavailable, http.StatusTooEarly:
		return episode.ClassUnavailable, true
	}
	switch {
	case status >= 500:
		return episode.ClassServerError, true
	case status >= 300 && status < 400:
		return episode.ClassNotFound, false
	}
	return episode.ClassBadRequest, false
}

// inBandStatus is the status an error inside a 200 answer would have had: servers put it into the code, as a number.
func inBandStatus(said openai.APIError) int {
	if n, ok := said.Code.(int); ok && n >= 400 && n < 600 {
		return n
	}
	if strings.Contains(strings.ToLower(said.Type), "badrequest") || strings.Contains(said.Type, "invalid_request") {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// generated is how many tokens have been generated: the server's own count, what came of ids or logprobs, or, with none of them, an estimate by the text.
func (a *answer) generated() int {
	u := a.counts()
	if u.Completion != nil && *u.Completion > 0 {
		return int(*u.Completion)
	}
	if c := a.choice(); c != nil && len(c.ids)+len(c.logprobs) > 0 {
		return max(len(c.ids), len(c.logprobs))
	}
	return (len(a.said()) + textPerToken - 1) / textPerToken
}

// textPerToken is what a token is taken for where only text came, bytes.
const textPerToken = 4

const maxSaid = 1000 // bytes of a server's message that are kept

// readRefusal understands every form of error body met so far: {"error":{…}}, {"error":"…"}, the flat form of SGLang
// and older vLLM, FastAPI's {"detail":…}, plain text, HTML. It never fails.
func readRefusal(body []byte) openai.APIError {
	body = bytes.TrimSpace(body)
	var o map[string]json.RawMessage
	if json.Unmarshal(body, &o) != nil {
		return openai.APIError{Message: plain(body)}
	}
	if inner, ok := o["error"]; ok {
		var nested map[string]json.RawMessage
		if json.Unmarshal(inner, &nested) == nil && nested != nil {
			return errorFields(nested, body)
		}
		if s := scalar(inner); s != nil {
			e := errorFields(o, body)
			if o["message"] == nil {
				e.Message = clip(*s, maxSaid)
			}
			return e
		}
	}
	return errorFields(o, body)
}

func errorFields(o map[string]json.RawMessage, body []byte) openai.APIError {
	var e openai.APIError
	if s := scalar(o["message"]); s != nil {
		e.Message = unpack(*s)
	} else if d := o["detail"]; d != nil {
		e.Message = string(d)
		if s := scalar(d); s != nil {
			e.Message = *s
		}
	} else {
		e.Message = plain(body)
	}
	if s := upstream(o["metadata"]); s != "" {
		e.Message += ": " + s
	}
	e.Message = clip(e.Message, maxSaid)
	if s := scalar(o["type"]); s != nil {
		e.Type = *s
	}
	if s := scalar(o["param"]); s != nil {
		e.Param = s
	}
	if s := scalar(o["code"]); s != nil {
		e.Code = *s
		if n, err := strconv.Atoi(*s); err == nil {
			e.Code = n
		}
	}
	return e
}

// upstream is what the provider behind OpenRouter said; the message itself is a fixed phrase there.
func upstream(metadata json.RawMessage) string {
	var o struct {
		Raw json.RawMessage `json:"raw"`
	}
	if json.Unmarshal(metadata, &o) != nil {
		return ""
	}
	if s := scalar(o.Raw); s != nil {
		return unpack(*s)
	}
	return ""
}

// unpack opens a message that is itself an error body, as gateways wrap them.
func unpack(message string) string {
	var o struct{ Error struct{ Message string } }
	if strings.HasPrefix(message, "{") && json.Unmarshal([]byte(message), &o) == nil && o.Error.Message != "" {
		return o.Error.Message
	}
	return message
}

// plain makes one readable line of a body that is no JSON; of HTML only the text is kept.
func plain(body []byte) string {
	s, _ := repair(string(body[:min(len(body), 16<<10)]))
	if strings.HasPrefix(s, "<") {
		s = stripTags(s)
	}
	return clip(strings.Join(strings.Fields(s), " "), maxSaid)
}

func stripTags(s string) string {
	var b strings.Builder
	for s != "" {
		text, rest, ok := strings.Cut(s, "<")
		b.WriteString(text + " ")
		if !ok {
			break
		}
		tag := strings.ToLower(rest[:min(len(rest), 6)])
		end := ">"
		if strings.HasPrefix(tag, "style") || strings.HasPrefix(tag, "script") {
			end = "</" // its content is not for people
		}
		_, s, _ = strings.Cut(rest, end)
		if end == "</" {
			_, s, _ = strings.Cut(s, ">")
		}
	}
	return b.String()
}

// clip cuts s to about n bytes at a character's edge and says so.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
