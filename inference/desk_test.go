package inference

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"tranche/internal/mock"
)

// What a long line, event or event name needed is not kept for the answers that follow.
func TestTheDeskForgetsLongLines(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	for name, stream := range map[string]string{
		"a line":      "data: \"" + long + "\"\n\n",
		"an event":    "data: [\n" + strings.Repeat("data: \""+long[:1<<16]+"\",\n", 40) + "\n",
		"a name":      "event: " + long + "\ndata: {}\n\n",
		"an ordinary": "data: {}\n\ndata: [DONE]\n\n",
	} {
		d := &desk{}
		d.events.reset(strings.NewReader(stream), DefaultMaxLineBytes)
		if _, _, err := d.events.next(); err != nil {
			t.Fatal(err)
		}
		if large := name != "an ordinary"; d.isLarge() != large {
			t.Errorf("%s: large %v, want %v", name, !large, large)
		}
	}
}

// What is kept for good has a bound, and the one that was used last is the next.
func TestDesksKeptAreBounded(t *testing.T) {
	var d desks
	var lent []*desk
	for range 12 {
		lent = append(lent, &desk{room: scanRoom{texts: make([]byte, 0, mostKept/2)}})
	}
	for _, t := range lent {
		d.put(t)
	}
	if d.size > mostDesks || d.size < mostDesks/2 || len(d.kept) != mostDesks/(mostKept/2) {
		t.Errorf("%d desks of %d bytes are kept", len(d.kept), d.size)
	}
	for i := len(d.kept) - 1; i >= 0; i-- {
		if d.take() != lent[i] {
			t.Errorf("desk %d is not the next", i)
		}
	}
	if d.size != 0 {
		t.Errorf("%d bytes are kept of none", d.size)
	}
}

// A reply is whole and stays as it is while the memory it was read in is used for the next ones, in a whole answer and in a stream.
func TestRepliesOutliveTheirDesk(t *testing.T) {
	var n atomic.Int32
	text := func(i int32) string {
		return strings.Repeat(fmt.Sprintf("%d \"said\"\n – ", i), int(1+i%3)) + fmt.Sprint("plain ", i)
	}
	s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		a := mock.Text(text(n.Add(1)))
		a.TokenIDs = []int32{n.Load()}
		a.Send(r, w)
	}})
	for _, stream := range []bool{false, true} {
		e := open(t, s, func(c *Config) { c.Stream = stream })
		var kept []string
		n.Store(0)
		var replies []func() string
		for range 12 {
			r := generate(t, e, call("x"))
			show := func() string { return fmt.Sprint(show(r.Message), r.SampledIDs, r.Finish, r.Model) }
			kept, replies = append(kept, show()), append(replies, show)
		}
		for i, show := range replies {
			if got := show(); got != kept[i] || !strings.HasPrefix(got, text(int32(i+1))) {
				t.Errorf("stream %v, reply %d: %q, was %q", stream, i+1, got, kept[i])
			}
		}
	}
}
