package serve

import (
	"net/http"
	"strconv"
	"strings"

	"example.com/lockstep/internal/problem"
)

// ETag is the strong entity tag of a thing at version.
func ETag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// Any is the version that If-Match: * asks for: whichever it is.
const Any = -1

// IfMatch returns the version in the If-Match headers, or 0 without one. It blames a
// header that is neither * nor the one entity tag which a thing has, and If-None-Match,
// a condition on which no write here depends: it must not seem to hold.
func IfMatch(r *http.Request, bad *problem.Faults) (version int64) {
	bad.Unless(r.Header["If-None-Match"] == nil, "If-None-Match", "is not for writes: If-Match is")
	values := r.Header.Values("If-Match")
	match := strings.Join(values, ", ")
	switch {
	case len(values) == 0:
		return 0
	case match == "*":
		return Any
	}
	version, err := strconv.ParseInt(strings.Trim(match, `"`), 10, 64)
	bad.Unless(err == nil && version > 0 && match == ETag(version), "If-Match", `must be one version in quotes, such as "3", or *`)
	return version
}
