package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"tranche/storage"
	"tranche/storage/feed"
)

type feedCmd struct {
	Dir       string        `arg:"" help:"Run directory; the run may be going on, may have been killed, or be finished."`
	Listen    string        `default:"127.0.0.1:8700" placeholder:"ADDR" help:"Address to serve; port 0 takes a free one. Default: ${default}, which only this machine reaches."`
	APIKeyEnv string        `name:"api-key-env" placeholder:"NAME" help:"NAME of the environment variable that holds the key which clients must send (Authorization: Bearer KEY). Default: none is asked for."`
	Drain     time.Duration `default:"5s" placeholder:"TIME" help:"After ctrl-c: how long streams may take to end properly. Default: ${default}."`
	JSON      bool          `name:"json" help:"Print the address as a JSON document."`
}

// Help is kong's long text of the command.
func (feedCmd) Help() string {
	return "Serves the rows of a run over HTTP as Arrow IPC streams, in the order in which their groups are published, so that a trainer samples while the run goes on: pyarrow.ipc.open_stream(urllib.request.urlopen(ADDR + \"/v1/rows?follow=1\")). Rows can be chosen by domain, reward, staleness and more; consumers acknowledge what they have and go on behind it. docs/feed.md tells all of it, GET / of the server a little. It prints its address when it is ready; ctrl-c stops it. `tranche run --feed ADDR` serves the same inside of a run."
}

func (c *feedCmd) do(ctx context.Context, a *app) error {
	f := &faults{}
	checkAddress(f, "--listen", c.Listen)
	checkKeyName(f, "--api-key-env", c.APIKeyEnv)
	if c.Drain < 0 {
		f.add("--drain: expected a time such as 5s, found %v", c.Drain)
	}
	if err := f.err(); err != nil {
		return withCode(codeUsage, err)
	}
	if _, err := (&viewCmd{Dir: c.Dir}).open(a); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return notServed("--listen", c.Listen, err)
	}
	server, err := openFeed(a, feed.Config{Dir: c.Dir, Key: os.Getenv(c.APIKeyEnv)})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server.Serve(listener)
	told := c.tell(a, listener.Addr())
	if told == nil {
		warnOpen(a, listener.Addr(), c.APIKeyEnv)
		a.notice("serving the rows of %s; ctrl-c stops", c.Dir)
		<-a.signals
		a.notice("stopping: waiting up to %s for streams to end", c.Drain)
	}
	closeServer(ctx, a, server, c.Drain)
	return told
}

// tell prints where the feed is.
func (c *feedCmd) tell(a *app, address net.Addr) error {
	url := "http://" + address.String()
	if c.JSON {
		return a.printJSON(map[string]string{"url": url, "dir": c.Dir})
	}
	return a.print(url + "\n")
}

// openFeed says what an error of the feed means to a person.
func openFeed(a *app, cfg feed.Config) (*feed.Server, error) {
	server, err := feed.Open(cfg)
	switch {
	case errors.Is(err, storage.ErrLocked):
		return nil, withCode(codeRefused, fmt.Errorf("%w; one feed serves all consumers of a run", err))
	case errors.Is(err, storage.ErrDamaged):
		return nil, damaged(a, cfg.Dir, err)
	}
	return server, withCode(codeDisk, err)
}

// warnOpen says that others can read the rows.
func warnOpen(a *app, address net.Addr, keyEnv string) {
	if tcp, ok := address.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && keyEnv == "" {
		a.notice("warning: whoever reaches %s can read the rows and acknowledge them; a key can be asked for", address)
	}
}

// checkAddress checks the form of an address to serve.
func checkAddress(f *faults, at, address string) {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		f.add("%s: expected HOST:PORT, such as 127.0.0.1:8700, found %q", at, address)
	}
}

// notServed says why there is nothing to listen on. An address that cannot be understood is a wrong flag; one that is taken is not.
func notServed(flag, address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return withCode(codeAddress, fmt.Errorf("%s %s: the address is taken%s; stop what serves there, or take another port: 0 is any free one", flag, address, label(", by ", holderOf(address))))
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EADDRNOTAVAIL):
		return withCode(codeAddress, fmt.Errorf("%s %s: %w", flag, address, err))
	}
	return withCode(codeUsage, fmt.Errorf("%s %s: expected HOST:PORT, such as 127.0.0.1:8000: %w", flag, address, err))
}

// holderOf names who serves at an address; "" when nobody knows.
func holderOf(address string) string {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return ""
	}
	return portHolder(a.Port)
}

// runFeed is the feed of a run by the run itself.
type runFeed struct {
	listener net.Listener // nil = there is none
	server   *feed.Server
	over     atomic.Bool // nothing more will be published
}

// feedDrain is how long a run that has ended waits for the streams of its feed to come to the last row, and feedAck for what consumers
// acknowledge then; feedCut is all of it after a signal, wherever it comes, and half of it what streams have to come to the last row.
const (
	feedDrain = 10 * time.Second
	feedAck   = 10 * time.Second
	feedCut   = 2 * time.Second
)

// listenFeed takes the address of --feed before anything is begun.
func (s *session) listenFeed() (err error) {
	if s.set.Feed == "" {
		return nil
	}
	if s.feed.listener, err = net.Listen("tcp", s.set.Feed); err != nil {
		return notServed("--feed", s.set.Feed, err)
	}
	return nil
}

// openFeed serves the rows of the run; its directory is open by now.
func (s *session) openFeed() (err error) {
	if s.feed.listener == nil {
		return nil
	}
	s.feed.server, err = openFeed(s.a, feed.Config{Dir: s.dir, Key: os.Getenv(s.set.FeedKeyEnv), AckWait: feedAck, Writing: func() bool { return !s.feed.over.Load() }})
	if err != nil {
		return err
	}
	s.feed.server.Serve(s.feed.listener)
	warnOpen(s.a, s.feed.listener.Addr(), s.set.FeedKeyEnv)
	s.a.notice("feed: http://%s/v1/rows", s.feed.listener.Addr())
	return nil
}

// closeFeed lets streams come to the last row, and ends them.
func (s *session) closeFeed() {
	if s.feed.server == nil {
		if s.feed.listener != nil {
			_ = s.feed.listener.Close() // nobody was served
		}
		return
	}
	s.feed.over.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), feedDrain+feedAck)
	defer cancel()
	ending := make(chan error, 1)
	go func() { ending <- s.feed.server.End(ctx) }() // awaited on both ways
	cut := feedCut
	var ended error
	select {
	case ended = <-ending:
	case <-s.stopped.stop:
		cut /= 2
		defer time.AfterFunc(cut, cancel).Stop()
		ended = <-ending
	}
	ctx, cancel = context.WithTimeout(context.Background(), cut)
	defer cancel()
	if err := errors.Join(ended, s.feed.server.Close(ctx)); err != nil {
		s.a.notice("feed: not every stream came to the last row (%v); `%s feed %s` serves them", err, s.a.program, quoted(s.dir))
	}
}
