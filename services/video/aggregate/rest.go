package aggregate

import (
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
)

// MaxBody is the largest body of a request, in bytes. The largest video fits even if every
// character is escaped.
const MaxBody = 256 << 10

// HTTPOptions reads the caller, the headers and the query of a write. parameters are the names of
// the query parameters that are allowed.
func HTTPOptions(r *http.Request, found *problem.Violations, parameters ...string) (o WriteOptions, query url.Values) {
	o.Caller = auth.Of(r.Context())
	o.Keys = r.Header.Values(idempotency.Header)
	o.IfVersion = rest.IfMatch(r, found)
	return o, rest.Query(r, found, parameters...)
}

// WriteHeaders sets the headers that every answer to a write has. token names the position of the
// row after the write.
func WriteHeaders(w http.ResponseWriter, version int64, token string, replayed bool) {
	w.Header().Set("ETag", rest.ETag(version))
	w.Header().Set("Consistency-Token", token)
	if replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
}

// Given removes the fields that have their zero value, because a protocol may be unable to
// distinguish such a field from an absent one. A time is never absent: the zero time is the year 1,
// which a caller may send.
func Given(fields map[string]any) map[string]any {
	maps.DeleteFunc(fields, func(_ string, value any) bool {
		_, isTime := value.(time.Time)
		return value == nil || !isTime && reflect.ValueOf(value).IsZero()
	})
	return fields
}
