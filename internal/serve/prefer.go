package serve

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/lockstep/internal/problem"
)

// PreferredWait is the first wait in the Prefer headers (RFC 7240), in whole seconds
// and at most ceiling, and whether there is one; otherwise it is fallback. What was
// preferred belongs into Preference-Applied.
func PreferredWait(h http.Header, fallback, ceiling time.Duration) (wait time.Duration, preferred bool, err error) {
	for preference := range strings.SplitSeq(strings.Join(h.Values("Prefer"), ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, _ := strings.Cut(preference, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"`)
		if value == "" || strings.Trim(value, "0123456789") != "" {
			return 0, false, problem.Invalid("Prefer", "wait must be a whole number of seconds, and not negative")
		}
		// Digits can only fail by being too many: more than the ceiling.
		seconds, err := strconv.Atoi(value)
		if most := int(ceiling.Seconds()); err != nil || seconds > most {
			seconds = most
		}
		return time.Duration(seconds) * time.Second, true, nil
	}
	return fallback, false, nil
}
