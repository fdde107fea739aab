package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

// frozen is the gauge of an engine that counts no more.
type frozen struct{}

func (frozen) Load(context.Context) (episode.Load, error) {
	return episode.Load{Steps: episode.Ptr(int64(7)), Running: episode.Ptr(3)}, nil
}

// An engine hangs and its server is well: what it has is taken away and answered elsewhere long before any deadline, and it is told as lost.
func TestWhatAnEngineHangsOnGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, down := time.Now(), ""
		bad := hanging(1000)
		ends := fleet(bad, hanging(0))
		ends[0].Gauge = frozen{}
		trace := Trace{Down: func(endpoint string, why *episode.Fault, _ time.Duration) { down = endpoint + " " + string(why.Class) }}
		totals, sink, err := play(t, Config{Endpoints: ends, Trace: trace, Concurrency: 8, Rules: Rules{Patience: 10 * time.Minute}}, RunConfig{Source: &list{n: 40, samples: 1}})
		if err != nil || totals.Done != 40 || len(sink.twice) > 0 {
			t.Fatalf("totals %+v, %v", totals, err)
		}
		if took := time.Since(began); took > 10*time.Minute || down != "m0 idle_timeout" || bad.flying.Load() != 0 {
			t.Errorf("took %v, lost %q, %d calls still hang", took, down, bad.flying.Load())
		}
	})
}
