package serve

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
)

const (
	// maxLogged is the limit of bytes for each text of a request in its log line. With this limit,
	// the line of a failed request is at most 1 KB.
	maxLogged = 200
	// faultsPerSecond and faultBurst bound the lines at INFO about requests that fail by the client's fault,
	// that outlive the client's deadline, that the guard refuses, or that everybody may send, and the spans of those that
	// cost their clients nothing. The metrics count all of them.
	faultsPerSecond = 10
	faultBurst      = 50
)

// noRoute takes the place of the path for a request that has no route.
const noRoute = "(no route)"

// methods are the HTTP methods that a route may have.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// method returns r's method, or "_OTHER" if r's method is neither in methods nor OPTIONS.
func method(r *http.Request) string {
	if slices.Contains(methods, r.Method) || r.Method == http.MethodOptions {
		return r.Method
	}
	return "_OTHER"
}

// route returns the pattern of the route for r's path. It prefers a route of r's method, and
// otherwise takes a route of another method. It returns noRoute if no method has the path.
func route(routes chi.Routes, r *http.Request) string {
	for _, m := range append([]string{r.Method}, methods...) {
		if pattern := routes.Find(chi.NewRouteContext(), m, r.URL.EscapedPath()); pattern != "" {
			return pattern
		}
	}
	return noRoute
}

func newFaults() *rate.Limiter { return rate.NewLimiter(faultsPerSecond, faultBurst) }

// freeKey is the context key of the *bool that says whether a request costs its client
// nothing.
type freeKey struct{}

// free notes that the request costs its client nothing, so a stranger can send any number of such
// requests.
func free(ctx context.Context) {
	if f, ok := ctx.Value(freeKey{}).(*bool); ok {
		*f = true
	}
}

func isFree(ctx context.Context) bool {
	f, ok := ctx.Value(freeKey{}).(*bool)
	return ok && *f
}

// clients are the codes of errors that are the client's own fault.
var clients = []codes.Code{
	codes.Canceled, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.ResourceExhausted,
	codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated,
}

func isClients(code codes.Code) bool { return slices.Contains(clients, code) }

// printable returns the first 200 bytes of a text from a request, for a log line. It replaces
// each character that takes more than one byte in JSON by a question mark.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '?'
		}
		return r
	}, text[:min(len(text), maxLogged)])
}
