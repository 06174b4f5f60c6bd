package serve

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
)

// vary are the headers of a request on which its answer depends: its caller, and how fresh it has to be.
const vary = "Authorization, Consistency, Consistency-Token"

// hardened sets headers that tell a browser not to guess another content type, not to keep the
// answer, not to show it in a frame, and not to run anything in it. No cache may keep an answer,
// because the answer depends on its caller and may be older than the consistency token of the
// next request.
//
// Some caches keep answers anyway: the cache of a service worker, and a proxy that is configured to
// ignore Cache-Control. With Vary, such a cache gives an answer only to a request with the same
// caller and the same token.
//
// Strict-Transport-Security is left to the proxy that ends TLS. This port has no TLS, and without
// TLS browsers ignore the header. Browsers open Cloud Run's domain .app only with TLS.
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

// preflightSeconds is how long a browser may remember the answer to a preflight request. After
// an origin is removed, its pages can go on calling for this time.
const preflightSeconds = "600"

// crossOrigin lets scripts of pages with the origins of g call the API and read the answers.
// Without these headers, a browser refuses to make the calls and to pass on the answers. Pages of
// other origins do not get the headers. The headers never allow credentials, because the API uses
// no cookies. A page has to send the token of its user.
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
