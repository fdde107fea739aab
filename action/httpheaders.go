package action

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Headers are HTTP request headers whose values may hold secrets: ${NAME} in a value stands for an environment variable. What they stood for
// is taken out of everything that is shown or stored.
type Headers struct {
	Secrets Secrets // what the variables stood for
	values  http.Header
}

var (
	variable   = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	secretive  = regexp.MustCompile(`(?i)authorization|cookie|token|secret|api-?key|password`)
)

// ReadHeaders puts the variables in. A header that looks as if it held a key must name a variable: the settings are stored with the run.
func ReadHeaders(given map[string]string) (Headers, error) {
	h := Headers{values: http.Header{}}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		switch {
		case !headerName.MatchString(name):
			errs = append(errs, fmt.Errorf("headers: %q is no name of a header", name))
			continue
		case secretive.MatchString(name) && !variable.MatchString(value):
			errs = append(errs, fmt.Errorf("headers: %s: a key must not stand here; put it into an environment variable and write ${NAME} (the value given is not shown)", name))
			continue
		}
		value = variable.ReplaceAllStringFunc(value, func(ref string) string {
			secret, ok := os.LookupEnv(ref[2 : len(ref)-1])
			if !ok || secret == "" {
				errs = append(errs, fmt.Errorf("headers: %s: the environment variable %s is not set", name, ref[2:len(ref)-1]))
				return ""
			}
			h.Secrets.add(secret)
			return secret
		})
		if strings.ContainsAny(value, "\r\n\x00") {
			errs = append(errs, fmt.Errorf("headers: %s: the value holds a line break, which no header can", name))
		}
		h.values.Set(name, value)
	}
	return h, errors.Join(errs...)
}

// Put sets the headers of a request.
func (h Headers) Put(r *http.Request) {
	for name, values := range h.values {
		if name == "Host" {
			r.Host = values[0]
			continue
		}
		r.Header[name] = values
	}
}
