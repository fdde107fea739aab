package inference

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"tranche/episode"
)

// Config says which server an Endpoint talks to and how. The zero value of every field but BaseURL is usable.
type Config struct {
	// Name is what the endpoint is called in records and messages. Default: host:port of BaseURL, or the path of its socket.
	Name string
	// BaseURL is the server's address, http://host:port with or without /v1; a pasted /chat/completions is cut off. unix:///path/to.sock is
	// a server on a socket of this machine.
	BaseURL string
	// Model is the model id to ask for. Default "": the only one the server lists; several are an error that names them.
	Model string
	// APIKey is sent as a bearer token. Default "": none is sent. It is never logged, stored or put into an error.
	APIKey string

	// Concurrency is how many requests the caller will have in flight at most. It sizes the connection pools (one for
	// short calls over plain HTTP, one for all else), each with a little room above it; a caller that goes beyond waits for a connection, and
	// its attempts' clocks run. Default 64.
	Concurrency int
	// ServerIdle is how long the server keeps an idle connection open. The client gives a connection up well before that,
	// so that it never writes into one that is being closed. Default 5 s, what vLLM, SGLang and llama-server do.
	ServerIdle time.Duration
	// ConnectTimeout bounds dialling and, with https, the TLS handshake. Default 10 s.
	ConnectTimeout time.Duration
	// OpenTimeout bounds each request of Open. Default 30 s.
	OpenTimeout time.Duration
	// AttemptTimeout bounds one attempt from dispatch to the last byte. Time spent waiting before Generate is called does
	// not count. A call that may generate over 8,192 tokens, or has a very long prompt, gets proportionally more (episode.Stretch).
	// Default 0: no bound but the caller's context.
	AttemptTimeout time.Duration
	// IdleTimeout bounds the wait between two pieces of an answer once its first byte has come: the time a server queues a
	// request is not idle time. Comments and white space that only keep the connection alive are no pieces. It grows with the call as
	// AttemptTimeout does. Default 0: no bound.
	IdleTimeout time.Duration

	// Exchange is how calls and answers go. Default "": by messages and, from the second call of an episode on, by exact token ids where the server
	// can. ExchangeIDs sends ids from the first call on and refuses a call that cannot go so; ExchangeChat always sends messages. Only calls
	// that ask for token ids go by them.
	Exchange episode.Exchange
	// Stream asks for answers in pieces, which gives a time to first token and costs several times the client CPU. Off
	// for a call whose token ids or logprobs the server gives only in a whole answer. Default false.
	Stream bool
	// KeepRaw keeps the body of every answer to Generate and Extend as it came, in the reply or the fault, up to 4 MiB of it; of an answer in parts,
	// that of the last. Calls go out one by one then, not as lists. Default false.
	KeepRaw bool
	// MaxLineBytes is the longest line of a stream that is read, in bytes; a longer one fails the attempt as
	// line_too_long. Default 16 MiB.
	MaxLineBytes int
	// MaxReplyBytes is the longest answer that is read, in bytes; a longer one fails the attempt. Default 64 MiB.
	MaxReplyBytes int

	// CAFile names a PEM file with the certificate authorities to trust instead of the system's. Default "": the system's.
	CAFile string
	// ProxyFromEnvironment sends requests through HTTP_PROXY and HTTPS_PROXY. Default false: inference servers are near,
	// and a proxy that was meant for something else adds its own time-outs.
	ProxyFromEnvironment bool
	// ExtraBody holds more fields for every request body, sent as they are. They win over this package's own fields, and
	// a call's own Sampling.Extra wins over them.
	ExtraBody map[string]json.RawMessage

	// Capacity overrides what the server says, field by field. 0 keeps the server's figure.
	Capacity episode.Capacity
	// Capabilities overrides what the probe finds, by the names of the fields in a record: {"token-ids-in": false}. Default: nothing.
	Capabilities map[string]json.RawMessage
}

// Defaults of Config.
const (
	DefaultConcurrency    = 64
	DefaultServerIdle     = 5 * time.Second
	DefaultConnectTimeout = 10 * time.Second
	DefaultMaxLineBytes   = 16 << 20
	DefaultMaxReplyBytes  = 64 << 20
)

// Validate reports every fault of the configuration at once.
func (c Config) Validate() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if _, err := addressOf(c.BaseURL); err != nil {
		add("endpoint URL: %w", err)
	}
	for name, n := range map[string]int{
		"Concurrency": c.Concurrency, "MaxLineBytes": c.MaxLineBytes, "MaxReplyBytes": c.MaxReplyBytes,
		"Capacity.ContextTokens": c.Capacity.ContextTokens, "Capacity.KVTokens": c.Capacity.KVTokens, "Capacity.Sequences": c.Capacity.Sequences,
	} {
		if n < 0 {
			add("%s is %d; expected 0 (the default) or more", name, n)
		}
	}
	for name, d := range map[string]time.Duration{
		"ServerIdle": c.ServerIdle, "ConnectTimeout": c.ConnectTimeout, "OpenTimeout": c.OpenTimeout, "AttemptTimeout": c.AttemptTimeout, "IdleTimeout": c.IdleTimeout,
	} {
		if d < 0 {
			add("%s is %v; expected 0 (the default) or more", name, d)
		}
	}
	if !slices.Contains([]episode.Exchange{"", episode.ExchangeIDs, episode.ExchangeChat}, c.Exchange) {
		add("Exchange is %q; expected %q, %q or nothing", c.Exchange, episode.ExchangeIDs, episode.ExchangeChat)
	}
	if strings.ContainsAny(c.APIKey, "\r\n\x00") {
		add("the API key holds a line break; check how its environment variable was set")
	}
	if err := CheckOverrides(c.Capabilities); err != nil {
		faults = append(faults, err)
	}
	if err := checkExtra(c.ExtraBody); err != nil {
		add("ExtraBody: %w", err)
	}
	return errors.Join(faults...)
}

// withDefaults fills what was left open. It expects a valid Config.
func (c Config) withDefaults(a address) Config {
	if c.Name == "" {
		c.Name = a.host
	}
	orInt(&c.Concurrency, DefaultConcurrency)
	orInt(&c.MaxLineBytes, DefaultMaxLineBytes)
	orInt(&c.MaxReplyBytes, DefaultMaxReplyBytes)
	orDuration(&c.ServerIdle, DefaultServerIdle)
	orDuration(&c.ConnectTimeout, DefaultConnectTimeout)
	return c
}

func orInt(p *int, d int) {
	if *p == 0 {
		*p = d
	}
}

func orDuration(p *time.Duration, d time.Duration) {
	if *p == 0 {
		*p = d
	}
}

// clientIdle is how long an idle connection may be used again: well inside the server's own limit, since a request
// written while the server closes is lost and may not be sent again.
func clientIdle(serverIdle time.Duration) time.Duration {
	margin := min(200*time.Millisecond, serverIdle/5)
	return serverIdle*4/5 - margin
}

// address is a server's base URL taken apart.
type address struct {
	host   string // host:port, for names; the path of a socket
	root   string // without the version, for /metrics, /tokenize and the like
	api    string // with the version, for /chat/completions and /models
	socket string // path; "" = none
}

// socketAddress is a server on a socket. The path is all of the address; the host name in requests is a form.
func socketAddress(path string) (address, error) {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
		return address{}, fmt.Errorf("%q is no server address; expected an absolute path, as in unix:///run/server.sock", "unix://"+path)
	}
	return address{host: path, socket: path, root: "http://localhost", api: "http://localhost/v1"}, nil
}

var (
	versionSegment = regexp.MustCompile(`/v\d+$`)
	// versionBefore is a path that needs no version behind it, for it has one: Gemini's /v1beta/openai, a gateway's /v1/ACCOUNT/NAME/openai.
	versionBefore = regexp.MustCompile(`/v\d+[a-z]*\d*(?:/[^/]+)*/openai$`)
)

// Address is the address that a base URL stands for, with what different spellings of one have in common: no scheme's own port, small letters in the
// host, no slash at the end, no version v1. The error says what is no address.
func Address(base string) (string, error) {
	a, err := addressOf(base)
	if err != nil {
		return "", err
	}
	if a.socket != "" {
		return "unix://" + a.socket, nil
	}
	u, err := url.Parse(strings.TrimSuffix(a.api, "/v1"))
	if err != nil {
		return "", err
	}
	u.Host = strings.ToLower(u.Host)
	if port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; port != "" {
		u.Host = strings.TrimSuffix(u.Host, port)
	}
	return u.String(), nil
}

func addressOf(base string) (address, error) {
	if base == "" {
		return address{}, errors.New("none given; expected something like http://127.0.0.1:8000/v1")
	}
	if socket, ok := strings.CutPrefix(base, "unix://"); ok {
		return socketAddress(socket)
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return address{}, fmt.Errorf("%q is no server address; expected something like http://127.0.0.1:8000/v1", base)
	}
	if u.User != nil {
		return address{}, fmt.Errorf("the address of %s holds a user name or password; pass the key through the environment instead", u.Host)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return address{}, fmt.Errorf("%q has a query or fragment; expected only scheme, host and path", base)
	}
	path := strings.TrimRight(u.Path, "/")
	path, pasted := strings.CutSuffix(path, "/chat/completions")
	path = strings.TrimRight(path, "/")
	root := u.Scheme + "://" + u.Host
	if v := versionSegment.FindString(path); v != "" {
		return address{host: u.Host, root: root + strings.TrimSuffix(path, v), api: root + path}, nil
	}
	if pasted && path != "" || versionBefore.MatchString(path) {
		return address{host: u.Host, root: root + path, api: root + path}, nil
	}
	return address{host: u.Host, root: root + path, api: root + path + "/v1"}, nil
}
