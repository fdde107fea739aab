package feed

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/storage"
	"tranche/storage/arrowrows"
)

var errQuery = errors.New("bad request")

func badQuery(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errQuery}, args...)...)
}

// maxWait bounds wait: proxies and clients give up long before.
const maxWait = 10 * time.Minute

// query is one request for rows.
type query struct {
	from     int64
	consumer string
	maxRows  int64 // 0 = no bound
	wait     time.Duration
	follow   bool
	columns  []string
	zstd     bool
	choice   choice
}

// parameters lists those of /v1/rows.
func parameters() []string {
	return []string{"consumer", "cursor", "max_rows", "wait", "follow", "columns", "zstd",
		"domain", "split", "task", "status", "stop", "min_reward", "max_reward", "scored", "flag", "without_flag", "failures",
		"useful", "min_reward_std", "max_staleness", "version"}
}

// valuesOf reads the parameters of a request, which may have no others than these; a body is none of it.
func valuesOf(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badQuery("%v", err)
	}
	for name := range q {
		if !slices.Contains(known, name) {
			return nil, badQuery("there is no parameter %.60q here; expected %s", name, strings.Join(append(known, "nothing else"), ", "))
		}
	}
	return q, nil
}

// reader reads values one by one and keeps the first fault.
type reader struct {
	values url.Values
	err    error
}

func (r *reader) fault(name, expected string) {
	if r.err == nil {
		r.err = badQuery("%s: expected %s, found %.60q", name, expected, r.values.Get(name))
	}
}

// text is a value that is given once.
func (r *reader) text(name string) (string, bool) {
	list, given := r.values[name]
	if len(list) > 1 && r.err == nil {
		r.err = badQuery("%s is given %d times", name, len(list))
	}
	return r.values.Get(name), given
}

func (r *reader) flag(name string) bool {
	switch v, given := r.text(name); {
	case !given, v == "0", v == "false":
		return false
	case v == "1", v == "true":
		return true
	}
	r.fault(name, "1 or 0")
	return false
}

func (r *reader) whole(name string, least int64) (int64, bool) {
	v, given := r.text(name)
	n, err := strconv.ParseInt(v, 10, 64)
	if given && (err != nil || n < least) {
		r.fault(name, fmt.Sprintf("a whole number from %d on", least))
	}
	return n, given
}

func (r *reader) number(name string) *float64 {
	v, given := r.text(name)
	if !given {
		return nil
	}
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(x) {
		r.fault(name, "a number")
	}
	return &x
}

// deviation is a number that is not below 0.
func (r *reader) deviation(name string) *float64 {
	x := r.number(name)
	if x != nil && *x < 0 {
		r.fault(name, "0 or more")
	}
	return x
}

func (r *reader) duration(name string, most time.Duration) time.Duration {
	v, given := r.text(name)
	d, err := time.ParseDuration(v)
	if given && (err != nil || d < 0 || d > most) {
		r.fault(name, fmt.Sprintf("a time such as 30s, up to %s", most))
	}
	return d
}

// list is a value that may be given several times, and each time several by comma.
func (r *reader) list(name string) []string {
	var out []string
	for _, v := range r.values[name] {
		out = append(out, strings.Split(v, ",")...)
	}
	return out
}

// query reads what a request asks for. Errors: errQuery, those of storage for cursors and consumers.
func (s *Server) query(req *http.Request) (query, error) {
	values, err := valuesOf(req, parameters()...)
	if err != nil {
		return query{}, err
	}
	r := &reader{values: values}
	q := query{follow: r.flag("follow"), wait: r.duration("wait", maxWait), columns: r.list("columns"), zstd: r.flag("zstd"), choice: choiceOf(r)}
	q.maxRows, _ = r.whole("max_rows", 1)
	q.consumer, _ = r.text("consumer")
	if r.err != nil {
		return q, r.err
	}
	if err := arrowrows.CheckColumns(q.columns); err != nil {
		return q, badQuery("columns: %v", err)
	}
	if err := q.choice.filter.Validate(); err != nil {
		return q, badQuery("%v", err)
	}
	return q, s.start(&q, values)
}

// start finds where a request begins: at its cursor, else behind what its consumer acknowledged, else at the first row.
func (s *Server) start(q *query, values url.Values) (err error) {
	if values.Has("consumer") {
		if err := storage.CheckConsumer(q.consumer); err != nil {
			return err
		}
		q.from, _ = s.order.Acked(q.consumer)
	}
	if values.Has("cursor") {
		q.from, err = s.order.Index(values.Get("cursor"))
	}
	return err
}
