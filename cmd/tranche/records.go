package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"tranche/inference"
	"tranche/storage"
)

// A run keeps what is known of each endpoint in endpoints/ of its directory: what was proved by generating is asked once, and a
// resume finds out whether it is still the same server.

// recordName is what an endpoint's record is called: its address, for the embedded engine's changes with every start.
func (s *session) recordName(m member) string {
	if s.file.Embedded {
		return "embedded"
	}
	_, address, _ := strings.Cut(m.url, "://")
	return strings.TrimRight(address, "/")
}

// settleRecords brings what is known of the endpoints up to date and writes it down, before the first episode.
func (s *session) settleRecords(ctx context.Context) error {
	errs := make([]error, len(s.fleet.members))
	var all sync.WaitGroup
	for i, m := range s.fleet.members {
		all.Go(func() { errs[i] = s.settleRecord(ctx, m) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session) settleRecord(ctx context.Context, m member) error {
	ask := s.adopt(m)
	if s.set.Probe == probeFull {
		ask = inference.AllQuestions()
	}
	if ask = unasked(ask, m.endpoint.Capabilities()); len(ask) > 0 {
		if _, err := m.endpoint.Probe(ctx, inference.ProbeOptions{Ask: ask}); err != nil {
			return context.Cause(ctx) // the options are sound: only a stop is an error
		}
	}
	return s.writeRecord(m)
}

const probeFull = "full"

// unasked leaves out the questions that were asked.
func unasked(ask []inference.Question, c inference.Capabilities) []inference.Question {
	asked := map[inference.Question]bool{}
	for _, q := range c.Asked {
		asked[q] = true
	}
	var left []inference.Question
	for _, q := range ask {
		if !asked[q] {
			left = append(left, q)
		}
	}
	return left
}

// adopt takes over the record of an earlier session, where it is of the same server. Where it is not, the user is told what changed,
// and the questions that were asked then are returned: they are to be asked again.
func (s *session) adopt(m member) []inference.Question {
	var old inference.Capabilities
	found, err := storage.ReadEndpoint(s.dir, s.recordName(m), &old)
	if err == nil && found {
		err = old.Check()
	}
	switch {
	case err != nil:
		s.a.notice("warning: %v; endpoint %s is asked anew", err, m.meter.name)
		return nil
	case !found || m.endpoint.Adopt(old):
		return nil
	}
	s.tellChanges(m, "changed since this run was last at it", m.endpoint.Capabilities().Changes(old))
	return old.Asked
}

func (s *session) tellChanges(m member, what string, changes []inference.Change) {
	for _, c := range changes {
		s.a.notice("endpoint %s %s: %s was %s, now %s", m.meter.name, what, c.Title, c.Was, c.Is)
	}
}

func (s *session) writeRecord(m member) error {
	if err := s.writer.WriteEndpoint(s.recordName(m), m.endpoint.Capabilities()); err != nil {
		return withCode(codeDisk, fmt.Errorf("keep what is known of endpoint %s: %w", m.meter.name, err))
	}
	return nil
}

// tellUp says that an endpoint is back and has it looked at. The scheduler calls it and must not wait.
func (s *session) tellUp(endpoint string) {
	s.a.notice("endpoint %s answers again", endpoint)
	select {
	case s.back <- endpoint:
	default: // so many wait already; the next change will tell
	}
}

// recheck asks endpoints that were away who they are now, until ctx ends: one that was restarted may be of another version.
func (s *session) recheck(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-s.back:
			for _, m := range s.fleet.members {
				if m.meter.name == name {
					s.recheckOne(ctx, m)
				}
			}
		}
	}
}

func (s *session) recheckOne(ctx context.Context, m member) {
	changes, err := m.endpoint.Recheck(ctx, inference.ProbeOptions{})
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		s.a.notice("warning: what endpoint %s can do now is not known: %v", m.meter.name, err)
		return
	case len(changes) == 0:
		return
	}
	s.tellChanges(m, "came back as another", changes)
	s.a.notice("endpoint %s: its limits stay as they were at the start; stop and resume to use the new ones", m.meter.name)
	if err := s.writeRecord(m); err != nil {
		s.a.notice("warning: %v", err)
	}
}
