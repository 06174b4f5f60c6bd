package rest

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"example.com/lockstep/internal/problem"
)

// Query returns the query parameters. It reports a parameter that is unknown or given twice,
// because a typing error in a filter must not return everything.
func Query(r *http.Request, violations *problem.Violations, known ...string) url.Values {
	query, err := url.ParseQuery(r.URL.RawQuery)
	violations.Require(err == nil, "query", "must be a well-formed query string")
	for _, name := range slices.Sorted(maps.Keys(query)) {
		violations.Require(slices.Contains(known, name), name, "is not a known parameter")
		violations.Require(len(query[name]) == 1, name, "must not be given twice")
	}
	return query
}

// OpenAPI serves a service's document at /openapi.json.
func OpenAPI(r chi.Router, document []byte) {
	r.Get("/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(document)))
		_, _ = w.Write(document) // a client that has disconnected needs no answer
	})
}

// ETag is the strong entity tag of a thing at version.
func ETag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// Any is the version for If-Match: *, which accepts every version.
const Any = -1

// IfMatch returns the version in the If-Match headers, or 0 without such a header. It reports a
// header that is neither * nor exactly one entity tag. It also reports If-None-Match, because no
// write here checks that condition and the client must not believe that it was checked.
func IfMatch(r *http.Request, violations *problem.Violations) (version int64) {
	violations.Require(r.Header["If-None-Match"] == nil, "If-None-Match", "is not for writes: If-Match is")
	values := r.Header.Values("If-Match")
	match := strings.Join(values, ", ")
	switch {
	case len(values) == 0:
		return 0
	case match == "*":
		return Any
	}
	version, err := strconv.ParseInt(strings.Trim(match, `"`), 10, 64)
	violations.Require(err == nil && version > 0 && match == ETag(version), "If-Match", `must be one version in quotes, such as "3", or *`)
	return version
}
