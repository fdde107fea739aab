package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/term"

	"tranche/storage"
)

// errNotKept: there is no raw answer to show; the message says why.
var errNotKept = errors.New("not kept")

// rawAnswers are the kept answers of a turn, counted from 1 as view shows them. It is an errNotKept error when none has a body.
func rawAnswers(r *storage.Row, turn int) ([]storage.RawAnswer, error) {
	none := func(format string, args ...any) error {
		return fmt.Errorf("episode %s: %s: %w", r.EpisodeID, fmt.Sprintf(format, args...), errNotKept)
	}
	if len(r.Raw) == 0 {
		return nil, none("no raw answer of it is in the dataset; a run keeps them with --keep-raw")
	}
	var list []storage.RawAnswer
	var whole int64 // bytes of those that have no body
	for _, a := range r.Raw {
		switch {
		case int(a.Turn) != turn-1:
		case len(a.Body) == 0 && a.Bytes > 0:
			whole += a.Bytes
		default:
			list = append(list, a)
		}
	}
	switch {
	case len(list) > 0:
		return list, nil
	case whole > 0:
		return nil, none("the answer of turn %d, %d bytes, came when the 16 MiB that are kept of an episode were full", turn, whole)
	}
	last := r.Raw[len(r.Raw)-1].Turn + 1
	return nil, none("turn %d has no raw answer; the last turn with one is %d", turn, last)
}

// raw shows the answers of one turn: the bytes as they came, or on a terminal the text of them. What is to be said of them goes to stderr.
func (c *viewCmd) raw(a *app, r *storage.Row) error {
	list, err := rawAnswers(r, c.Raw)
	if err != nil {
		return withCode(codeUsage, err)
	}
	if c.JSON {
		return a.printJSON(map[string]any{"episode_id": r.EpisodeID, "raw": list})
	}
	for _, one := range list {
		a.notice("turn %d: HTTP %d%s, %d bytes%s", c.Raw, one.Status, label(", the failure ", or(one.Class, "")), one.Bytes, missing(one))
		if err := c.body(a, one.Body); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	return nil
}

// missing says how much of an answer is not in the dataset; "" = nothing.
func missing(one storage.RawAnswer) string {
	if n := one.Bytes - int64(len(one.Body)); n > 0 {
		return fmt.Sprintf("; the last %d of them were not kept", n)
	}
	return ""
}

func (c *viewCmd) body(a *app, body []byte) error {
	if f, ok := a.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		body = []byte(visible(string(body)) + "\n")
	}
	_, err := a.stdout.Write(body)
	return err
}
