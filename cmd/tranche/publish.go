package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tranche/storage/objectstore"
)

// publishing is the way of a run into an object store while it is written; the zero value is none.
type publishing struct {
	pusher   *objectstore.Pusher   // nil = nothing is published
	follower *objectstore.Follower // nil before the first row can come, and after the end
}

// checkPlaces refuses a URL where a directory is wanted, and one that names no object store.
func (s *Settings) checkPlaces(f *faults) {
	if objectstore.IsURL(s.Out) {
		f.add("out: expected a local directory, found a URL: a run is written on a disk and published from there; use -o DIR --publish %s", quoted(s.Out))
	}
	if s.Publish != "" {
		f.at("publish", objectstore.CheckURL(s.Publish))
	}
}

// openPublishing finds out whether the run may go where it is to be published, before any request to an endpoint.
func (s *session) openPublishing(ctx context.Context) error {
	if s.set.Publish == "" {
		return nil
	}
	store, err := objectstore.Open(ctx, objectstore.Config{URL: s.set.Publish})
	if err != nil {
		return storeFault(fmt.Errorf("publish: %w", err), codeEndpoint)
	}
	pusher, err := objectstore.NewPusher(objectstore.Push{Dir: s.dir, Store: store})
	if err == nil {
		s.publishing.pusher = pusher // which may hold the directory from now on; dropPublishing lets go of it
		err = pusher.Prepare(ctx)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if errors.Is(err, objectstore.ErrOtherRun) && !s.resumed {
		return withCode(codeRefused, fmt.Errorf("publish: %w; to go on with that one: `%s pull %s DIR`, then `%s resume DIR`", err, s.a.program, quoted(s.set.Publish), s.a.program))
	}
	if err != nil {
		return storeFault(fmt.Errorf("publish: %w", err), startCode(err))
	}
	return nil
}

// beginPublishing follows what the writer publishes. It goes on until finishPublishing or dropPublishing.
func (s *session) beginPublishing() {
	if s.publishing.pusher != nil {
		s.publishing.follower = objectstore.Follow(context.Background(), s.publishing.pusher, func(text string) { s.a.notice("publish: %s", text) })
	}
}

// dropPublishing ends without pushing what is left, for a session that ends before its time.
func (s *session) dropPublishing() {
	if s.publishing.follower != nil {
		s.publishing.follower.Close()
		s.publishing.follower = nil
	}
	if s.publishing.pusher != nil {
		_ = s.publishing.pusher.Close() // the lock; nothing was held back in it
		s.publishing.pusher = nil
	}
}

// finishPublishing pushes what the store still lacks, after the dataset is sealed, and tells how far it came. A signal, also one that
// ended the run, leaves it --drain-timeout.
func (s *session) finishPublishing(r *report) error {
	if s.publishing.follower == nil {
		return nil
	}
	defer s.dropPublishing()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watched := make(chan struct{})
	go func() { // ends with ctx
		defer close(watched)
		s.cancelAfterSignal(ctx, cancel)
	}()
	follower := s.publishing.follower
	s.publishing.follower = nil // Finish ends it
	err := follower.Finish(ctx)
	cancel()
	<-watched
	pushed := s.publishing.pusher.Progress()
	r.Published = &pushed
	if err != nil {
		why := short(visibleLine(strings.TrimPrefix(err.Error(), pushed.URL+": ")), 300) // where the run ended badly itself, nothing else says it
		r.Notes = append(r.Notes, fmt.Sprintf("not all is published to %s: %s; `%s push %s %s` goes on", pushed.URL, why, s.a.program, quoted(s.dir), quoted(s.set.Publish)))
		return storeFault(fmt.Errorf("publish: %w", err), codeDisk)
	}
	r.Notes = append(r.Notes, fmt.Sprintf("published to %s: %s", pushed.URL, pushedText(pushed)))
	return nil
}

func (s *session) cancelAfterSignal(ctx context.Context, cancel func()) {
	select {
	case <-s.stopped.stop:
	case <-ctx.Done():
		return
	}
	t := time.NewTimer(s.set.DrainTimeout)
	defer t.Stop()
	select {
	case <-t.C:
		cancel()
	case <-ctx.Done():
	}
}
