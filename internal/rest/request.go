package rest

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

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
