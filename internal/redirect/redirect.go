// Package redirect holds the rule by which all clients of this program follow an answer that sends them on. It sends nothing itself.
package redirect

import (
	"errors"
	"fmt"
	"net/http"
)

// SameHost is an http.Client's CheckRedirect that follows no redirect to another host: secrets, and what a model wrote, go where the user
// said and nowhere else.
func SameHost(next *http.Request, before []*http.Request) error {
	first := before[0].URL
	switch {
	case next.URL.Host != first.Host || next.URL.Scheme != first.Scheme && next.URL.Scheme != "https":
		return fmt.Errorf("it sends on to another host, %s", next.URL.Host)
	case len(before) >= 5:
		return errors.New("it sends on and on")
	}
	return nil
}
