package serve

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
)

// vary are the headers of a request on which its answer depends: its caller, and how fresh it has to be.
const vary = "Authorization, Consistency, Consistency-Token"

// hardened sets headers against guesses of the content type, caches, frames and scripts. No cache
// may keep an answer, because it depends on its caller and may be older than the consistency token
// of the next request.
//
// The cache of a service worker, or a proxy that ignores Cache-Control, may keep an answer anyway.
// With Vary it gives the answer only to a request with the same caller and the same token.
//
// Strict-Transport-Security is left to the proxy that ends TLS, because browsers ignore it without
// TLS.
func hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Vary", vary)
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
		next.ServeHTTP(w, r)
	})
}

// preflightSeconds is how long a browser may remember the answer to a preflight request, also after
// an origin was removed.
const preflightSeconds = "600"

// crossOrigin lets scripts of pages with the origins of g call the API and read the answers. The
// headers never allow credentials, because the API uses no cookies: a page has to send the token of
// its user.
func (g *Guard) crossOrigin(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if len(g.origins) == 0 {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Vary", vary+", Origin") // one line, because nginx before 1.23 takes only one of several
			origin := r.Header.Get("Origin")
			if !slices.Contains(g.origins, origin) {
				next.ServeHTTP(w, r)
				return
			}
			h.Set("Access-Control-Allow-Origin", origin)
			if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
				h.Set("Access-Control-Expose-Headers", "*")
				next.ServeHTTP(w, r)
				return
			}
			free(r.Context())
			g.strangers.answer(log, w, r, http.HandlerFunc(preflight))
		})
	}
}

// preflight permits the request about which a browser asks.
func preflight(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	h.Set("Access-Control-Allow-Headers", "Authorization, *") // the wildcard does not include Authorization
	h.Set("Access-Control-Max-Age", preflightSeconds)
	w.WriteHeader(http.StatusNoContent)
}
