// Package later reads how long a server asks to be left alone (RFC 9110, section 10.2.3).
package later

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// most is what nonsense is cut to: nobody should sleep for a century on a stranger's word.
const most = 24 * time.Hour

// Asked is the wait of an answer's Retry-After: seconds, whole or not, or an HTTP date, and Retry-After-Ms before it where that is there; at
// most a day, 0 = it does not say. A date is read by the server's own clock where the answer tells it: the two clocks may be minutes apart.
func Asked(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return seconds(ms / 1000)
	}
	said := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(said, 64); err == nil {
		return seconds(s)
	}
	at, err := http.ParseTime(said)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return seconds(at.Sub(now).Seconds())
}

func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, most.Seconds()) * float64(time.Second))
}
