package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"google.golang.org/grpc/stats"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
)

// A Guard decides which requests reach a handler, alike over REST and gRPC. It determines
// the caller, counts the request against the caller's rate and asks the rules of access,
// before the body is read. The context of a request that it admits has the caller: see
// [auth.Of].
type Guard struct {
	rules   auth.Rules
	callers *auth.Authenticator
	rates   *rates
	origins Origins
}

// NewGuard returns the guard of one service. Health, readiness, metrics and gRPC's own
// services have no rule: every caller is admitted to them.
func NewGuard(rules auth.Rules, callers *auth.Authenticator, o Options) *Guard {
	return &Guard{rules: rules, callers: callers, rates: newRates(o.UserRate), origins: o.Origins}
}

// admit returns r with its caller, and leave, which ends the request. It fails with the
// answer to a caller that may not call the operation, is not known, or calls too often.
func (g *Guard) admit(operation string, r *http.Request) (admitted *http.Request, leave func(), err error) {
	if isOwn(operation) || g.rules[operation] == auth.Public {
		return r, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	caller, err := g.callers.Principal(ctx, r.Header)
	switch {
	case err != nil:
		return nil, nil, err
	case caller.Kind == auth.Anonymous && g.rules[operation] == auth.Services && g.callers.Local():
		return r, func() {}, nil
	}
	if leave, err = g.rates.enter(r.Context(), caller); err != nil {
		return nil, nil, err
	}
	if err = g.rules.Check(operation, caller); err != nil {
		leave()
		return nil, nil, err
	}
	return r.WithContext(auth.With(r.Context(), caller)), leave, nil
}

// isOutside reports whether an admitted gRPC call has a caller from outside of the system,
// whose trace is not continued: it would decide which of our spans are sampled. The caller of
// an operation for services is a service, also where callers have no identity.
func (g *Guard) isOutside(ctx context.Context, rpc *stats.RPCTagInfo) bool {
	return auth.Of(ctx).Kind != auth.Service && g.rules[rpc.FullMethodName] != auth.Services
}

// isOwn reports whether this package registers the operation.
func isOwn(operation string) bool {
	return isInfrastructure(operation) || isProbe(strings.TrimPrefix(operation, "GET "))
}

// guarded is the middleware that calls admit in front of a handler. A request without a matching
// route passes: its 404 or 405 reveals nothing that openapi.json does not.
func (g *Guard) guarded(log *slog.Logger, routes chi.Routes) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			method, pattern := matched(routes, r)
			if pattern == "" {
				next.ServeHTTP(w, r)
				return
			}
			admitted, leave, err := g.admit(method+" "+pattern, r)
			if err != nil || g.rules[method+" "+pattern] == auth.Public {
				free(r.Context())
			}
			if err == nil {
				defer leave()
				next.ServeHTTP(w, admitted)
				return
			}
			// The telemetry of a refused request has its route, too.
			chi.RouteContext(r.Context()).RoutePatterns = []string{pattern}
			if problem.From(err).Code == problem.CodeUnauthenticated {
				w.Header().Set("WWW-Authenticate", challenge(r.Header))
			}
			problem.Write(w, r, log, err)
		})
	}
}

// matched is the route of r, by the very path and method that chi goes by: a request that
// had one route here and another one there would pass by the rule of the wrong route.
func matched(routes chi.Routes, r *http.Request) (method, pattern string) {
	at := chi.RouteContext(r.Context())
	method = cmp.Or(at.RouteMethod, r.Method)
	path := cmp.Or(at.RoutePath, r.URL.RawPath, r.URL.Path, "/")
	return method, routes.Find(chi.NewRouteContext(), method, path)
}

// challenge says how to authenticate, as RFC 6750 has it: a request without a token gets
// no error.
func challenge(h http.Header) string {
	if len(h.Values("Authorization")) == 0 {
		return "Bearer"
	}
	return `Bearer error="invalid_token"`
}

// Operations are the routes and the gRPC methods that need a rule of access.
func (s *Server) Operations() (operations []string, err error) {
	err = chi.Walk(s.rest, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		operations = append(operations, method+" "+route)
		return nil
	})
	operations = slices.AppendSeq(operations, maps.Keys(s.grpc.methods()))
	slices.Sort(operations)
	return slices.DeleteFunc(operations, isOwn), err
}

// checkRules fails unless each operation has a rule, and each rule its operation.
func (s *Server) checkRules() error {
	operations, err := s.Operations()
	return errors.Join(err, s.grpc.guard.rules.Complete(operations))
}
