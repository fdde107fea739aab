package inference

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// maxDials bounds connections being opened at once: a burst of hundreds overflows the accept queue of small servers,
// whose refused connections then look like a dead server.
const maxDials = 64

// newTransport builds an endpoint's connection pool for all that does not go by lane. See the comments of Config for the reasons.
func newTransport(cfg Config, d *dialler) (*http.Transport, error) {
	t := &http.Transport{
		DialContext:           d.watched,
		TLSHandshakeTimeout:   cfg.ConnectTimeout,
		MaxIdleConns:          0, // no bound over all hosts: there is one
		MaxIdleConnsPerHost:   maxConns(cfg.Concurrency),
		MaxConnsPerHost:       maxConns(cfg.Concurrency),
		IdleConnTimeout:       clientIdle(cfg.ServerIdle),
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // the engines do not compress, and unpacking would hide sizes
		ReadBufferSize:        16 << 10,
		WriteBufferSize:       16 << 10,
		ForceAttemptHTTP2:     true, // where TLS offers it: a dialler of one's own turns it off otherwise
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter / 2},
	}
	if cfg.ProxyFromEnvironment && d.socket == "" {
		t.Proxy = http.ProxyFromEnvironment
	}
	if cfg.CAFile != "" {
		roots, err := ReadCAs(cfg.CAFile)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return t, nil
}

// maxConns bounds the connections. Without a bound net/http dials for every request that finds no idle connection at that
// instant and keeps dialling when one comes free: a burst of 512 then opens 700. The bound leaves room above the stated
// concurrency for the small questions beside generation.
func maxConns(concurrency int) int { return concurrency + max(8, concurrency/32) }

// pingAfter is how long an HTTP/2 connection may be silent before it is asked whether it lives: all its calls would wait for one that does not.
const pingAfter = 30 * time.Second

// aliveness finds out that the other machine is gone, while a call waits for its answer: after 75 s of silence, a server that computes answers still.
var aliveness = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4}

// dialler opens the connections of an endpoint, lanes and others, maxDials at once.
type dialler struct {
	net    net.Dialer
	socket string // is dialled whatever the address; "" = none
	slots  chan struct{}
}

func newDialler(timeout time.Duration, socket string) *dialler {
	return &dialler{net: net.Dialer{Timeout: timeout, KeepAliveConfig: aliveness}, socket: socket, slots: make(chan struct{}, maxDials)}
}

func (d *dialler) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-d.slots }()
	if d.socket != "" {
		network, addr = "unix", d.socket
	}
	return d.net.DialContext(ctx, network, addr)
}

// watched dials for net/http. A connection that the server's machine forgets fails after a while, as one that broke; lanes make the call on another one.
func (d *dialler) watched(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if socket := socketOf(conn); socket != nil {
		time.AfterFunc(heardBy, func() {
			if forgotten(socket) {
				conn.Close()
			}
		})
	}
	return conn, nil
}

// ReadCAs reads a PEM file of certificate authorities; one that holds none is an error.
func ReadCAs(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, nil
}
