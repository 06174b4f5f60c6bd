package serve

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"example.com/lockstep/internal/problem"
)

// NewRouter returns a router with /healthz, /readyz and /metrics, unless these have a port of
// their own. Its requests are traced, measured, logged (one line each), bounded, guarded and
// recovered from panics. Its 404 and 405 are problem documents.
func NewRouter(log *slog.Logger, health *Health, guard *Guard) *chi.Mux {
	r := newRouter(log)
	r.Use(guard.crossOrigin(log), guard.guarded(log, r))
	if health.Admin == nil {
		health.mount(r)
	}
	return r
}

// newRouter returns a router whose requests are not guarded.
func newRouter(log *slog.Logger) *chi.Mux {
	r := chi.NewRouter()
	r.Use(
		plainPath,
		newRequests().measured,
		logged(log, r),
		recoverer(log),
		hardened,
		bounded,
		middleware.GetHead,
	)
	r.NotFound(notFound(log))
	r.MethodNotAllowed(methodNotAllowed(log, r))
	return r
}

// Handler calls h and answers an error of h as a problem document. If h returns an error, it
// must not have begun to answer.
func Handler(log *slog.Logger, h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			problem.Write(w, r, log, err)
		}
	}
}

func isProbe(path string) bool {
	return path == "/healthz" || path == "/readyz" || path == "/metrics"
}

// logged writes the request's line in the shape that Cloud Logging shows as an HTTP request. The
// line has the route in place of the path, because the path's parameters are ids of users. It
// has no query, because a search text or a reason of deletion is personal data. The path of a
// request without a route is written only if LOG_LEVEL is debug.
func logged(log *slog.Logger, routes chi.Routes) func(http.Handler) http.Handler {
	faults := newFaults()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			started := time.Now()
			ww, wrapped := w.(middleware.WrapResponseWriter)
			if !wrapped { // a probe
				ww = middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			}
			next.ServeHTTP(ww, r)
			status := cmp.Or(ww.Status(), http.StatusOK) // the status of a handler that sets none
			level := slog.LevelInfo
			if isProbe(r.URL.Path) || (isFree(r.Context()) || status/100 == 4) && !faults.Allow() {
				level = slog.LevelDebug
			}
			method, route := method(r), route(routes, r)
			url := route
			if route == noRoute && log.Enabled(r.Context(), slog.LevelDebug) {
				url = printable(r.URL.EscapedPath())
			}
			log.LogAttrs(r.Context(), level, fmt.Sprintf("%s %s %d", method, route, status),
				slog.Group("httpRequest",
					slog.String("requestMethod", method),
					slog.String("requestUrl", url),
					slog.Int("status", status),
					slog.String("responseSize", strconv.Itoa(ww.BytesWritten())),
					slog.String("userAgent", printable(r.UserAgent())),
					slog.String("protocol", r.Proto),
					slog.String("latency", fmt.Sprintf("%.6fs", time.Since(started).Seconds()))))
		})
	}
}

// recoverer answers a panic with INTERNAL. If the answer has begun, it breaks the connection,
// because half an answer must not look like a whole one.
func recoverer(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			defer func() {
				switch p := recover(); {
				case p == nil:
				case p == http.ErrAbortHandler: //nolint:errorlint // the value itself is net/http's signal
					panic(p) //nolint:forbidigo // passed on
				case ww.Status() != 0:
					problem.From(panicError(p)).Log(r.Context(), log)
					panic(http.ErrAbortHandler) //nolint:forbidigo // the only way to break a connection
				default:
					problem.Write(ww, r, log, panicError(p))
				}
			}()
			next.ServeHTTP(ww, r)
		})
	}
}

// bounded limits the time and the body of a request, and the time of its answer.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		boundAnswer(w, requestTimeout+writeGrace)
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func notFound(log *slog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, log, problem.New(problem.CodeNotFound, "", "There is nothing at this path."))
	}
}

// methodNotAllowed answers 405 and names the methods that the path does have, as RFC 9110
// demands. If the path has none, it answers 404, because chi reports a method that it does not know
// as not allowed, whatever the path.
func methodNotAllowed(log *slog.Logger, routes chi.Routes) http.HandlerFunc {
	none := notFound(log)
	return func(w http.ResponseWriter, r *http.Request) {
		allowed := methodsOf(routes, r.URL.EscapedPath())
		if len(allowed) == 0 {
			none(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		problem.Write(w, r, log, problem.New(problem.CodeMethodNotAllowed, "", "This path does not have this method."))
	}
}

// methodsOf returns the methods that path has. A path with GET has HEAD, too: see
// [middleware.GetHead].
func methodsOf(routes chi.Routes, path string) (found []string) {
	for _, m := range methods {
		as := m
		if m == http.MethodHead {
			as = http.MethodGet
		}
		if routes.Match(chi.NewRouteContext(), as, path) {
			found = append(found, m)
		}
	}
	return found
}
