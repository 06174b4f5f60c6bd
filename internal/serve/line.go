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
	// maxLogged bounds each text of a request in its line, so that the line of a request
	// that fails is at most 1 KB.
	maxLogged = 200
	// faultsPerSecond and faultBurst bound the lines about requests that fail by their
	// client's fault, that the guard refuses, whatever the reason, or that are for
	// everybody: they cost the client nothing. The metrics count all of them.
	faultsPerSecond = 10
	faultBurst      = 50
)

// noRoute takes the place of the path for a request that has no route.
const noRoute = "(no route)"

// methods are those that a route may have.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// method is r's method, or "_OTHER" if it is not one of methods.
func method(r *http.Request) string {
	if slices.Contains(methods, r.Method) || r.Method == http.MethodOptions {
		return r.Method
	}
	return "_OTHER"
}

// route is the pattern of r's path, whether or not it has r's method, or noRoute.
func route(routes chi.Routes, r *http.Request) string {
	for _, m := range append([]string{r.Method}, methods...) {
		if pattern := routes.Find(chi.NewRouteContext(), m, r.URL.EscapedPath()); pattern != "" {
			return pattern
		}
	}
	return noRoute
}

func faultLines() *rate.Limiter { return rate.NewLimiter(faultsPerSecond, faultBurst) }

// freeKey is the context key of the *bool that says whether a request costs its client
// nothing.
type freeKey struct{}

// free notes that the request costs its client nothing: a stranger can send any number.
func free(ctx context.Context) {
	if f, ok := ctx.Value(freeKey{}).(*bool); ok {
		*f = true
	}
}

// clients are the codes of the client's own faults.
var clients = []codes.Code{
	codes.Canceled, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.ResourceExhausted,
	codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated,
}

func isClients(code codes.Code) bool { return slices.Contains(clients, code) }

// printable is text from a request in the form for a log line: its first 200 bytes,
// with a question mark for each character that takes more than one byte in JSON.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '?'
		}
		return r
	}, text[:min(len(text), maxLogged)])
}
