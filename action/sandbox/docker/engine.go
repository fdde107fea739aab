//go:build linux && (amd64 || arm64)

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// engine is the Engine API of a container engine, version 1.41 and later, as its reference has it.
type engine struct {
	client *http.Client
	socket string
}

const (
	apiPath    = "/v1.41"
	apiTimeout = 2 * time.Minute

	// soon is how long the removal of what did not become a sandbox may take.
	soon = 10 * time.Second
)

func newEngine(socket string) *engine {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &engine{&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, socket}
}

// refused is an answer other than success.
type refused struct {
	what    string
	status  int
	message string
}

func (e *refused) Error() string { return fmt.Sprintf("%s: HTTP %d: %s", e.what, e.status, e.message) }

// gone tells that there is no such thing.
func gone(err error) bool {
	var r *refused
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

// call sends a request; into, where not nil, gets the answer.
func (e *engine) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	what := method + " " + path
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	u := url.URL{Scheme: "http", Host: "engine", Path: apiPath + path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	if body == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", what, e.socket, err)
	}
	defer resp.Body.Close()
	const most = 16 << 20
	answer, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("%s: read the answer: %w", what, err)
	}
	if resp.StatusCode >= 300 {
		var said struct{ Message string }
		if json.Unmarshal(answer, &said) != nil {
			said.Message = string(answer[:min(len(answer), 500)])
		}
		return &refused{what, resp.StatusCode, said.Message}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s: read the answer: %w", what, err)
	}
	return nil
}

// info is what an engine says of itself, as far as it is used here.
type info struct {
	MemoryLimit     bool
	SwapLimit       bool
	PidsLimit       bool
	SecurityOptions []string
	DefaultRuntime  string
}

func (e *engine) info(ctx context.Context) (i info, err error) {
	return i, e.call(ctx, http.MethodGet, "/info", nil, nil, &i)
}

// image is the id of one, by its name.
func (e *engine) image(ctx context.Context, name string) (string, error) {
	var found struct{ ID string }
	err := e.call(ctx, http.MethodGet, "/images/"+name+"/json", nil, nil, &found)
	switch {
	case gone(err):
		return "", fmt.Errorf("there is no image %s; pull it first: docker pull %s", name, name)
	case err == nil && found.ID == "":
		return "", fmt.Errorf("the engine does not say which image %s is", name)
	}
	return found.ID, err
}

// labelled lists all containers with a label, also those that do not run.
func (e *engine) labelled(ctx context.Context, label string) (list []left, err error) {
	return list, e.call(ctx, http.MethodGet, "/containers/json", url.Values{"all": {"true"}, "filters": {filters(label)}}, nil, &list)
}

// container is what one is made of.
type container struct {
	Image           string
	Entrypoint      []string
	Cmd             []string
	User            string
	WorkingDir      string
	Hostname        string
	NetworkDisabled bool
	Labels          map[string]string
	HostConfig      hostConfig
}

type hostConfig struct {
	Binds          []string
	Tmpfs          map[string]string
	NetworkMode    string
	IpcMode        string
	CgroupnsMode   string
	ReadonlyRootfs bool
	AutoRemove     bool
	Memory         int64 // bytes
	MemorySwap     int64 // bytes, with memory: equal means no swap
	PidsLimit      int64
	CapDrop        []string
	SecurityOpt    []string
	Runtime        string    `json:",omitempty"`
	LogConfig      logConfig // none: nobody reads it
}

type logConfig struct{ Type string }

// run creates a container and starts it.
func (e *engine) run(ctx context.Context, c container) (id string, err error) {
	var made struct{ ID string }
	if err := e.call(ctx, http.MethodPost, "/containers/create", nil, c, &made); err != nil {
		return "", err
	}
	if err := e.call(ctx, http.MethodPost, "/containers/"+made.ID+"/start", nil, nil, nil); err != nil {
		return "", errors.Join(err, e.removeSoon(ctx, made.ID))
	}
	return made.ID, nil
}

// removeSoon removes a container for who may not want to wait any more.
func (e *engine) removeSoon(ctx context.Context, id string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), soon)
	defer stop()
	return e.remove(ctx, id)
}

// remove kills a container, however far it got, and waits until it is gone. What is gone already is no error.
func (e *engine) remove(ctx context.Context, id string) error {
	err := e.call(ctx, http.MethodDelete, "/containers/"+id, url.Values{"force": {"true"}, "v": {"true"}}, nil, nil)
	var r *refused
	if errors.As(err, &r) && r.status == http.StatusConflict { // it is being removed already
		err = e.call(ctx, http.MethodPost, "/containers/"+id+"/wait", url.Values{"condition": {"removed"}}, nil, nil)
	}
	if gone(err) {
		return nil
	}
	return err
}
