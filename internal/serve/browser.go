package serve

import (
	"net/http"
	"slices"
	"strings"
)

// hardened tells a browser, in every answer, to take it for no other type, not to keep it,
// and not to show it in a frame or run anything in it. An answer depends on its caller and
// may be older than the next one's consistency token, so no cache may have it.
//
// Strict-Transport-Security is left to the proxy that ends TLS: this port has none, and
// browsers ignore the header there. They load all of .app, Cloud Run's domain, with TLS only.
func hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
		next.ServeHTTP(w, r)
	})
}

// preflightSeconds is how long a browser may remember the answer to a preflight: so long
// does a page go on calling whose origin was removed.
const preflightSeconds = "600"

// crossOrigin lets scripts of pages with these origins call the API and read the answers.
// A browser refuses both without the headers, which no other origin gets. They never allow
// credentials: cookies play no part, and a page has to bring the token of its user.
func crossOrigin(origins Origins) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if len(origins) == 0 {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Add("Vary", "Origin")
			origin := r.Header.Get("Origin")
			if !slices.Contains(origins, origin) {
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
			h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
			h.Set("Access-Control-Allow-Headers", "Authorization, *") // the wildcard has no Authorization
			h.Set("Access-Control-Max-Age", preflightSeconds)
			w.WriteHeader(http.StatusNoContent)
		})
	}
}
