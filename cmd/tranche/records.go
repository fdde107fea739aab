package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"tranche/inference"
	"tranche/storage"
)

// A run keeps what is known of each endpoint in endpoints/ of its directory: what was proved by generating is asked once, and a
// resume finds out whether it is still the same server. NAME.json is of the server that is there now, NAME.1.json, NAME.2.json… of those that
// were, the oldest first.

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
	slow := time.AfterFunc(tellProbe, func() {
		s.a.notice("still asking the endpoints what they can do; with --probe quick a run begins at once")
	})
	defer slow.Stop()
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
	old, another := s.adopt(m)
	o := inference.ProbeOptions{Ask: old.Asked}
	switch {
	case s.set.Probe == probeFull:
		o.Ask = inference.AllQuestions()
	case s.set.Probe == probeAuto && !s.file.Embedded:
		o = inference.ProbeOptions{Ask: inference.AllQuestions(), CallTimeout: startProbe, Timeout: startProbe}
	}
	if o.Ask = unasked(o.Ask, m.endpoint.Capabilities()); len(o.Ask) > 0 {
		if _, err := m.endpoint.Probe(ctx, o); err != nil {
			return context.Cause(ctx) // the options are sound: only a stop is an error
		}
	}
	if another { // told now, when what was proved then has been asked again
		s.tellChanges(m, "changed since this run was last at it", m.endpoint.Capabilities().Changes(old))
	}
	return s.writeRecord(m)
}

// Values of --probe that ask more than who it is.
const (
	probeFull = "full"
	probeAuto = "auto"
)

// startProbe is how long a run waits for what its endpoints can do, where nobody asked for it. What is not known then is found out by the calls.
const startProbe = 10 * time.Second

// tellProbe is how long that may take without a word.
const tellProbe = 2 * time.Second

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

// adopt takes over the record of an earlier session, where it is of the same server. Where it is of another, true, its questions are to be
// asked again.
func (s *session) adopt(m member) (old inference.Capabilities, another bool) {
	old, found, err := s.readRecord(m)
	if err != nil {
		s.a.notice("warning: %v; endpoint %s is asked anew", err, m.meter.name)
		return inference.Capabilities{}, false
	}
	return old, found && !m.endpoint.Adopt(old)
}

// readRecord reads what the run keeps of an endpoint; false when there is nothing.
func (s *session) readRecord(m member) (c inference.Capabilities, found bool, err error) {
	if found, err = storage.ReadEndpoint(s.dir, s.recordName(m), &c); err == nil && found {
		err = c.Check()
	}
	return c, found, err
}

func (s *session) tellChanges(m member, what string, changes []inference.Change) {
	for _, c := range changes {
		s.a.notice("endpoint %s %s: %s was %s, now %s", m.meter.name, what, c.Title, c.Was, c.Is)
	}
}

// writeRecord keeps what is known of an endpoint. Rows that are there may be another server's: its record stays too.
func (s *session) writeRecord(m member) error {
	now := m.endpoint.Capabilities()
	old, found, err := s.readRecord(m)
	if another := err == nil && found && !now.SameServer(old); another {
		err = s.keepEarlier(m, old)
	} else {
		err = nil // a record that cannot be read was told of by adopt
	}
	if err == nil {
		err = s.writer.WriteEndpoint(s.recordName(m), now)
	}
	if err != nil {
		return withCode(codeDisk, fmt.Errorf("keep what is known of endpoint %s: %w", m.meter.name, err))
	}
	return nil
}

// mostEarlier bounds the records of earlier servers of one endpoint.
const mostEarlier = 1000

// keepEarlier writes the record of a server that is no longer there under the endpoint's name and the next free number, from 1.
func (s *session) keepEarlier(m member, old inference.Capabilities) error {
	for n := 1; n <= mostEarlier; n++ {
		name := fmt.Sprintf("%s.%d", s.recordName(m), n)
		var there json.RawMessage
		if found, err := storage.ReadEndpoint(s.dir, name, &there); err == nil && !found {
			return s.writer.WriteEndpoint(name, old)
		}
	}
	return fmt.Errorf("there are %d records of earlier servers", mostEarlier)
}

// tellUp says that an endpoint is back and has it looked at. The scheduler calls it and must not wait.
func (s *session) tellUp(endpoint string) {
	s.a.notice("endpoint %s answers again", endpoint)
	s.lookAt(endpoint)
}

// tellBegan says that an endpoint's engine is another process than before, though no call may have found it away, and has it looked at.
func (s *session) tellBegan(endpoint string) {
	s.a.notice("endpoint %s was started anew meanwhile", endpoint)
	s.lookAt(endpoint)
}

// lookAt has an endpoint asked who it is. The scheduler calls it and must not wait.
func (s *session) lookAt(endpoint string) {
	select {
	case s.back <- endpoint:
	default: // so many wait already; the next change will tell
	}
}

// keepRecords writes down what the run's calls have taught of its endpoints.
func (s *session) keepRecords() {
	for _, m := range s.fleet.members {
		old, found, err := s.readRecord(m)
		if now := m.endpoint.Capabilities(); err != nil || !found || reflect.DeepEqual(now.Overflow, old.Overflow) {
			continue
		}
		if err := s.writeRecord(m); err != nil {
			s.a.notice("warning: %v", err)
		}
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
