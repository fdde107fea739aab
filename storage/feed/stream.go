package feed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/storage"
	"tranche/storage/arrowrows"
)

// contentType is the registered media type of Arrow IPC streams.
const contentType = "application/vnd.apache.arrow.stream"

// writingEvery is how often a stream asks whether the run is still written: to ask is to hold its lock for a moment.
const writingEvery = time.Second

// Reasons for which a stream ends, as its trailer Tranche-End tells.
const (
	endReached = "reached"  // all there is was sent
	endMaxRows = "max_rows" // as many as were asked for
	endWaited  = "waited"   // nothing came within wait
	endRun     = "run"      // the run is not written any more, and all there is was sent
	endStopped = "stopped"  // the server is
)

// ended says whether End was called.
func (s *Server) ended() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}

// rows answers with a stream.
func (s *Server) rows(w http.ResponseWriter, r *http.Request) {
	if err := s.order.Update(); err != nil && s.order.Reach() == 0 {
		refuseError(w, err)
		return
	}
	q, err := s.query(r)
	if err != nil {
		refuseError(w, err)
		return
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", contentType)
		return
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "%d streams are open, as many as this feed has", cap(s.places))
		return
	}
	if s.ended() {
		refuse(w, http.StatusServiceUnavailable, "this feed is about to end; what is left can be read from the next one")
		return
	}
	st := &stream{Server: s, q: q, w: w, next: q.from, told: q.from, dropped: map[string]int64{}, uncounted: map[string]int64{}}
	out, err := arrowrows.NewStream(w, arrowrows.Config{Columns: q.columns, Zstd: q.zstd, BatchBytes: s.cfg.BatchBytes})
	if err != nil {
		refuseError(w, err)
		return
	}
	st.out = out
	if err := st.serve(r.Context()); err != nil {
		out.Abandon()
		st.fail(err)
	}
}

// stream is one answer.
type stream struct {
	*Server
	q         query
	w         http.ResponseWriter
	out       *arrowrows.Writer
	next      int64 // everything below was sent or dropped
	told      int64 // the cursor that the last batch brought
	begun     bool  // the header of the answer is out
	dropped   map[string]int64
	counted   int64            // rows that the statistics have
	uncounted map[string]int64 // dropped, and not in the statistics yet
}

func (st *stream) serve(ctx context.Context) error {
	defer st.account()
	end, err := st.run(ctx)
	if err != nil {
		return err
	}
	return st.finish(end)
}

// run sends rows until there is a reason to end. It alternates between all there is and waiting for more.
func (st *stream) run(ctx context.Context) (end string, err error) {
	deadline := time.Now().Add(st.q.wait)
	for {
		news := st.changed()
		damage := st.order.Update()
		before := st.out.Rows()
		if end, err := st.all(ctx); end != "" || err != nil {
			return end, err
		}
		if damage != nil {
			return "", damage
		}
		if st.out.Rows() > before {
			if !st.q.follow {
				return endReached, nil
			}
			deadline = time.Now().Add(st.q.wait)
		}
		if end, err := st.await(ctx, news, deadline); end != "" || err != nil {
			return end, err
		}
	}
}

// all sends what can be read now.
func (st *stream) all(ctx context.Context) (end string, err error) {
	reach := max(st.next, st.order.Reach())
	for g, err := range groups(st.order.Rows(st.next, reach, st.q.choice.filter.TakesFailures())) {
		if err == nil {
			end, err = st.group(ctx, g)
		}
		if end != "" || err != nil {
			return end, err
		}
	}
	st.next = reach // what is behind the last row was replaced, or is not asked for
	return "", st.flush()
}

// group sends what is chosen of a group.
func (st *stream) group(ctx context.Context, g group) (end string, err error) {
	select {
	case <-st.stopped:
		return endStopped, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	default:
	}
	taken, dropped := st.q.choice.of(g.rows)
	most, sent := st.q.maxRows, st.out.Rows()
	if most > 0 && sent > 0 && sent+int64(len(taken)) > most {
		return endMaxRows, nil // the group is for the next request
	}
	for _, why := range dropped {
		st.dropped[why]++
		st.uncounted[why]++
	}
	if err := st.send(g, taken); err != nil {
		return "", err
	}
	if most > 0 && st.out.Rows() >= most {
		return endMaxRows, nil
	}
	return "", nil
}

// send puts rows into batches. A cursor stands behind whole groups: a batch that ends within one brings that before it.
func (st *stream) send(g group, taken []*storage.Row) error {
	for _, r := range taken {
		if !st.out.Fits(r) {
			if err := st.flush(); err != nil {
				return err
			}
		}
		if err := st.out.Add(r); err != nil {
			return err
		}
	}
	st.next = g.next
	if st.out.Full() {
		return st.flush()
	}
	return nil
}

// flush sends a batch where there are rows for one.
func (st *stream) flush() error {
	if st.out.Pending() == 0 {
		return nil
	}
	return st.batch()
}

// batch sends a batch, which may have no rows, and where it ends.
func (st *stream) batch() error {
	st.header()
	meta := map[string]string{"cursor": st.order.Cursor(st.next)}
	for name, n := range st.dropped {
		meta["dropped."+name] = strconv.FormatInt(n, 10)
	}
	if err := st.out.Flush(meta); err != nil {
		return err
	}
	st.told = st.next
	st.note(st.q.consumer, st.next)
	st.account()
	return http.NewResponseController(st.w).Flush()
}

func (st *stream) header() {
	if st.begun {
		return
	}
	st.begun = true
	st.w.Header().Set("Content-Type", contentType)
	st.w.Header().Set("Cache-Control", "no-store")
}

// account brings the statistics up to here.
func (st *stream) account() {
	st.count(st.out.Rows()-st.counted, st.uncounted)
	st.counted = st.out.Rows()
	clear(st.uncounted)
}

// await waits for more rows. It returns why the stream ends instead; "" = there may be more.
func (st *stream) await(ctx context.Context, news <-chan struct{}, deadline time.Time) (end string, err error) {
	if !st.q.follow && st.q.wait == 0 {
		return endReached, nil
	}
	st.header()
	if err := http.NewResponseController(st.w).Flush(); err != nil { // the client is to know that it is heard
		return "", err
	}
	for {
		left := time.Until(deadline)
		switch {
		case left <= 0 && !st.q.follow:
			return endWaited, nil
		case left <= 0 && !st.cfg.Writing():
			return st.over()
		case left <= 0:
			left = writingEvery
		}
		pause := time.NewTimer(left)
		select {
		case <-news:
			pause.Stop()
			return "", nil
		case <-st.ending:
			pause.Stop()
			return st.over()
		case <-ctx.Done():
			pause.Stop()
			return "", context.Cause(ctx)
		case <-pause.C:
		}
	}
}

// over ends a stream, unless something was published in the last moment.
func (st *stream) over() (end string, err error) {
	select {
	case <-st.stopped:
		return endStopped, nil
	default:
	}
	if err := st.order.Update(); err != nil {
		return "", err
	}
	if st.order.Reach() > st.next {
		return "", nil
	}
	return endRun, nil
}

// finish ends the stream properly. Where rows were left out behind the last batch, one without rows brings the cursor behind them.
func (st *stream) finish(end string) error {
	if st.out.Pending() > 0 || st.told != st.next {
		if err := st.batch(); err != nil {
			return err
		}
	}
	st.header()
	if err := st.out.Close(); err != nil {
		return err
	}
	st.w.Header().Set(http.TrailerPrefix+"Tranche-Cursor", st.order.Cursor(st.next))
	st.w.Header().Set(http.TrailerPrefix+"Tranche-End", end)
	st.w.Header().Set(http.TrailerPrefix+"Tranche-Dropped", tally(st.dropped))
	return nil
}

// tally is "staleness=3, status=1".
func tally(counts map[string]int64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s=%d", name, counts[name]))
	}
	return strings.Join(list, ", ")
}

// fail answers with an error where nothing was sent yet. Else the connection is cut: a stream that ended as if it were whole would hide it.
func (st *stream) fail(err error) {
	if !st.begun && !errors.Is(err, context.Canceled) {
		refuseError(st.w, err)
		return
	}
	panic(http.ErrAbortHandler)
}
