package problem

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// contentType is the media type of a problem document.
const contentType = "application/problem+json"

// Write answers the request with err as a problem document (RFC 9457) and logs errors
// that are not the client's fault. Nothing may have been written to w before.
func Write(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	e := From(err)
	e.Log(r.Context(), log)
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", retryAfterSeconds(e.RetryAfter))
	}
	w.WriteHeader(e.Code.rendering().http)
	if err := json.NewEncoder(w).Encode(e.document(r)); err != nil {
		log.DebugContext(r.Context(), "write problem document", "error", err)
	}
}

// document names the problem's type after its reason, so that type and title
// are as stable as the reason is.
func (e *Error) document(r *http.Request) map[string]any {
	words := strings.ToLower(e.reason())
	title := strings.ReplaceAll(words, "_", " ")
	doc := maps.Clone(e.Extra)
	if doc == nil {
		doc = map[string]any{}
	}
	doc["type"] = "/problems/" + strings.ReplaceAll(words, "_", "-")
	doc["title"] = strings.ToUpper(title[:1]) + title[1:]
	doc["status"] = e.Code.rendering().http
	doc["reason"] = e.reason()
	doc["detail"] = e.Detail
	doc["instance"] = instance(r)
	if len(e.Fields) > 0 {
		doc["errors"] = e.Fields
	}
	return doc
}

// instance is the path of the request, and of a very long one the beginning: an answer
// must not be larger than its request.
func instance(r *http.Request) string {
	path := r.URL.EscapedPath()
	return path[:min(len(path), maxText)]
}

// retryAfterSeconds rounds up: a header of 0 would invite an immediate retry.
func retryAfterSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
