package aggregate

import (
	"maps"
	"net/http"
	"net/url"
	"reflect"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
)

// MaxBody holds the largest video with every character escaped.
const MaxBody = 256 << 10

// HTTPOptions reads the caller of a write, its headers and its query; parameters are the allowed
// query parameters.
func HTTPOptions(r *http.Request, found *problem.Violations, parameters ...string) (o WriteOptions, query url.Values) {
	o.Caller = auth.Of(r.Context())
	o.Keys = r.Header.Values(idempotency.Header)
	o.IfVersion = rest.IfMatch(r, found)
	return o, rest.Query(r, found, parameters...)
}

// WriteHeaders sets the headers of every answer to a write, with the position that the
// write has reached.
func WriteHeaders(w http.ResponseWriter, version int64, token string, replayed bool) {
	w.Header().Set("ETag", rest.ETag(version))
	w.Header().Set("Consistency-Token", token)
	if replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
}

// Given drops the fields of a new row that have their zero value: a protocol may be
// unable to distinguish these from absent fields.
func Given(fields map[string]any) map[string]any {
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil || reflect.ValueOf(value).IsZero() })
	return fields
}
