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

// A Guard decides which requests reach a handler, in the same way over REST and gRPC. Before the
// body is read, it determines the caller, counts the request against the caller's rate and
// checks the rules of access. The context of an admitted request has the caller: see [auth.Of].
type Guard struct {
	rules   auth.Rules
	callers *auth.Authenticator
	rates   *rates
	origins Origins
	// strangers and probes bound the answers over REST. A refusal over gRPC has no body that could wait.
	strangers, probes *strangers
}

// NewGuard returns the guard of one service. Health, readiness, metrics and gRPC's own services
// have no rule, so every caller is admitted to them.
func NewGuard(rules auth.Rules, callers *auth.Authenticator, o Options) *Guard {
	return &Guard{
		rules: rules, callers: callers, rates: newRates(o.UserRate), origins: o.Origins,
		strangers: newStrangers(maxStrangers), probes: newStrangers(maxProbes),
	}
}

// admit returns r with its caller in the context. Call leave when the request ends. If the caller
// is unknown, may not call the operation or calls too often, err is the answer.
func (g *Guard) admit(operation string, r *http.Request) (admitted *http.Request, leave func(), err error) {
	if isOwn(operation) || g.rules[operation] == auth.Public {
		return r, func() {}, nil
	}
	caller, err := g.callers.Principal(r.Context(), r.Header)
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

// isOutside reports whether an admitted gRPC call has a caller from outside of the system. The
// trace of such a caller is not continued. Otherwise the caller would decide which of our spans are
// sampled. The caller of an operation for services counts as a service, even where callers have no
// identity.
func (g *Guard) isOutside(ctx context.Context, rpc *stats.RPCTagInfo) bool {
	return auth.Of(ctx).Kind != auth.Service && g.rules[rpc.FullMethodName] != auth.Services
}

// isOwn reports whether this package registers the operation.
func isOwn(operation string) bool {
	return isInfrastructure(operation) || isProbe(strings.TrimPrefix(operation, "GET "))
}

// guarded is the middleware that calls admit before a handler. A request without a matching
// route passes, because its 404 or 405 reveals nothing that openapi.json does not.
func (g *Guard) guarded(log *slog.Logger, routes chi.Routes) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			method, pattern := matched(routes, r)
			operation := method + " " + pattern
			switch {
			case pattern == "":
				free(r.Context())
				g.strangers.answer(log, w, r, next)
				return
			case isOwn(operation):
				g.probes.answer(log, w, r, next)
				return
			case g.rules[operation] == auth.Public:
				free(r.Context())
				g.strangers.answer(log, w, r, next)
				return
			}
			admitted, leave, err := g.admit(operation, r)
			if err == nil {
				defer leave()
				next.ServeHTTP(w, admitted)
				return
			}
			free(r.Context())
			// Without this, the telemetry of a refused request would have no route.
			chi.RouteContext(r.Context()).RoutePatterns = []string{pattern}
			g.strangers.answer(log, w, r, refusal(log, err))
		})
	}
}

// refusal answers with err.
func refusal(log *slog.Logger, err error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if problem.From(err).Code == problem.CodeUnauthenticated {
			w.Header().Set("WWW-Authenticate", challenge(r.Header))
		}
		problem.Write(w, r, log, err)
	}
}

// matched returns the route of r. It must find the route by the same path and method as chi.
// Otherwise a request could be checked by the rule of one route and then reach another route.
func matched(routes chi.Routes, r *http.Request) (method, pattern string) {
	at := chi.RouteContext(r.Context())
	method = cmp.Or(at.RouteMethod, r.Method)
	path := cmp.Or(at.RoutePath, r.URL.RawPath, r.URL.Path, "/")
	return method, routes.Find(chi.NewRouteContext(), method, path)
}

// challenge returns the WWW-Authenticate header, which says how to authenticate. As RFC 6750
// requires, a request without a token gets no error code.
func challenge(h http.Header) string {
	if len(h.Values("Authorization")) == 0 {
		return "Bearer"
	}
	return `Bearer error="invalid_token"`
}

// Operations returns the routes and the gRPC methods that need a rule of access.
func (s *Server) Operations() (operations []string, err error) {
	err = chi.Walk(s.rest, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		operations = append(operations, method+" "+route)
		return nil
	})
	operations = slices.AppendSeq(operations, maps.Keys(s.grpc.methods()))
	slices.Sort(operations)
	return slices.DeleteFunc(operations, isOwn), err
}

// checkRules fails unless each operation has a rule and each rule belongs to an operation.
func (s *Server) checkRules() error {
	operations, err := s.Operations()
	return errors.Join(err, s.grpc.guard.rules.Complete(operations))
}
