package remote

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"tranche/internal/redirect"
)

// The dialects.
const (
	SandboxFusion = "sandboxfusion" // POST /run_code; nothing is kept there between two requests
	SWEReX        = "swerex"        // POST /execute, /write_file, /read_file; folders stay
)

// Config says which far side, and how to talk to it. URL and Dialect must be set.
type Config struct {
	// URL is where the server is, as http://host:8080.
	URL string
	// Dialect is SandboxFusion or SWEReX.
	Dialect string
	// Key is sent as X-API-Key, which SWE-ReX wants. "" = none.
	Key string
	// Patience is how much longer than its program a request may take until the far side is taken for dead. 0 = 1 min.
	Patience time.Duration
	// MaxWall is the wall time of a program whose command names none: nothing over there may go on for ever. 0 = 10 min.
	MaxWall time.Duration
	// Client sends the requests. nil = one of its own, without a time limit: every request has one. Without a CheckRedirect of its own it
	// follows no answer to another host: the key, programs and files go where the URL says and nowhere else.
	Client *http.Client
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		errs = append(errs, fmt.Errorf("URL is %q, expected one such as http://host:8080", c.URL))
	}
	if all := []string{SandboxFusion, SWEReX}; !slices.Contains(all, c.Dialect) {
		errs = append(errs, fmt.Errorf("the dialect is %q, expected one of %q", c.Dialect, all))
	}
	if c.Patience < 0 || c.MaxWall < 0 {
		errs = append(errs, fmt.Errorf("the patience is %v and MaxWall %v, expected 0 or more", c.Patience, c.MaxWall))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Patience, c.MaxWall = cmp.Or(c.Patience, time.Minute), cmp.Or(c.MaxWall, 10*time.Minute)
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}}
	if c.Client != nil {
		client = *c.Client
	}
	if client.CheckRedirect == nil {
		client.CheckRedirect = redirect.SameHost
	}
	c.Client = &client
	return c
}
