package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/instrument"
)

// The headers that carry an identity.
const (
	// userHeader carries only tokens of end users.
	userHeader = "Authorization"
	// platformHeader carries a service's token for Cloud Run. Cloud Run verifies the token and
	// removes its signature before the request reaches the container.
	platformHeader = "X-Serverless-Authorization"
	// serviceHeader carries the token of platformHeader again, with the signature.
	serviceHeader = "X-Service-Authorization"
)

// removedSignature stands in place of the signature that Cloud Run has removed.
const removedSignature = ".SIGNATURE_REMOVED_BY_GOOGLE"

// maxToken bounds a token, in bytes. It is enough, because issuers keep their tokens below 4 KiB,
// which is the limit of some proxies.
const maxToken = 8 << 10

// Authenticator determines the caller of a request from the headers. Run fetches the keys of its
// issuers.
type Authenticator struct {
	users    *verifier // nil if the service is open
	tenants  string    // the path of the tenant's claim; empty if there is only one tenant
	services *verifier // nil if no caller is a service
	accounts []string
	local    bool
}

// Open returns an authenticator that reads no token and takes every caller for Everyone.
func Open() *Authenticator { return &Authenticator{} }

// New returns the authenticator for the configuration. It sends no request to the issuer, so a
// service can start while its issuer is away. If the service is open to everybody, New logs that
// once.
func New(ctx context.Context, c Config, log *slog.Logger) (*Authenticator, error) {
	switch {
	case c.Issuer != "" && c.Audience != "" && !c.Open:
	case c.Open && c.Issuer == "":
		log.WarnContext(ctx, "EVERYBODY_MAY_WRITE: every caller may read and change everything")
		return Open(), nil
	case c.Local && c.Issuer == "":
		log.InfoContext(ctx, "open to every caller: the process is local, and AUTH_ISSUER is not set")
		return Open(), nil
	case c.Issuer == "":
		return nil, errors.New("AUTH_ISSUER " + errNoIssuer)
	default:
		return nil, errors.New("AUTH_ISSUER needs AUTH_AUDIENCE, and contradicts EVERYBODY_MAY_WRITE")
	}
	a := &Authenticator{accounts: c.Services, local: c.Local, tenants: c.TenantClaim}
	places := make(chan struct{}, maxWaiting)
	a.users = newVerifier(c.Issuer, c.Audience, c.Local, places, log)
	if len(c.Services) > 0 {
		a.services = newVerifier(c.ServiceIssuer, c.ServiceAudience, c.Local, places, log)
	}
	return a, nil
}

// Run fetches the keys of the issuers until ctx ends, and returns nil. Until the first fetch
// succeeds, a request with a token is answered UNAVAILABLE.
func (a *Authenticator) Run(ctx context.Context) error {
	defer a.observe()()
	var loops sync.WaitGroup
	for _, v := range []*verifier{a.users, a.services} {
		if v != nil {
			loops.Go(func() { v.keys.run(ctx) })
		}
	}
	loops.Wait()
	return nil
}

// Local reports whether a caller without an identity may call the operations for services. On a
// developer's machine such a caller may, because services have no identity there. If the
// configuration names service accounts, services have an identity even there, so such a caller may
// not.
func (a *Authenticator) Local() bool { return a.local && a.services == nil }

// Principal returns the caller. If the service is open, the caller is Everyone. If there is an end
// user's token, that token alone decides. A request without a token is Anonymous. An invalid token
// is a client's error, UNAUTHENTICATED. A service account that is not configured is
// PERMISSION_DENIED. If the issuer's keys are needed and cannot be fetched, the error is
// UNAVAILABLE. If too many requests wait for the keys at once, the error is RESOURCE_EXHAUSTED.
// Principal returns within three seconds, and earlier if ctx ends.
func (a *Authenticator) Principal(ctx context.Context, h http.Header) (Principal, error) {
	if a.users == nil {
		return Principal{Kind: Everyone, Tenant: eventing.DefaultTenant}, nil
	}
	token, err := bearer(h, userHeader)
	switch {
	case err != nil:
		return Principal{}, Unauthenticated(err)
	case token != "":
		return a.user(ctx, token)
	}
	return a.service(ctx, h)
}

func (a *Authenticator) user(ctx context.Context, token string) (Principal, error) {
	var claims userClaims
	subject, err := a.users.verify(ctx, token, &claims)
	if err != nil {
		return Principal{}, err
	}
	tenant, err := claims.tenant(a.tenants)
	if err != nil {
		return Principal{}, Unauthenticated(err)
	}
	return Principal{Kind: User, User: userID(a.users.issuer, subject), Admin: claims.admin(), Tenant: tenant}, nil
}

// service verifies the first service token that still has its signature. It ignores a token whose
// signature Cloud Run has removed, because a proxy in front of Cloud Run may have sent that token
// for itself.
func (a *Authenticator) service(ctx context.Context, h http.Header) (Principal, error) {
	if a.services == nil {
		return Principal{}, nil
	}
	for _, header := range []string{serviceHeader, platformHeader} {
		token, err := bearer(h, header)
		if err != nil {
			return Principal{}, Unauthenticated(err)
		}
		if token == "" || strings.HasSuffix(token, removedSignature) {
			continue
		}
		var claims serviceClaims
		if _, err := a.services.verify(ctx, token, &claims); err != nil {
			return Principal{}, err
		}
		if !claims.Verified || !slices.Contains(a.accounts, claims.Email) {
			return Principal{}, Denied("This service account is none of the callers of this service.")
		}
		return Principal{Kind: Service, Service: claims.Email, Tenant: eventing.DefaultTenant}, nil
	}
	return Principal{}, nil
}

// bearer returns the token in the header, or "" if there is no such header.
func bearer(h http.Header, name string) (string, error) {
	values := h.Values(name)
	if len(values) == 0 {
		return "", nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	switch {
	case len(values) > 1:
		return "", fmt.Errorf("%s came %d times", name, len(values))
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return "", fmt.Errorf("%s has no bearer token", name)
	case len(token) > maxToken:
		return "", fmt.Errorf("%s has %d bytes, over %d", name, len(token), maxToken)
	}
	return token, nil
}

// observe reports the ages of the keys as a metric until stop is called.
func (a *Authenticator) observe() (stop func()) {
	meter, began := instrument.For("example.com/lockstep/internal/auth"), time.Now()
	age := meter.Age("auth.keys.age", "Time since the keys of the issuer were fetched; without keys, since the start.")
	return meter.Observe(func(_ context.Context, o metric.Observer) error {
		for of, v := range map[string]*verifier{"users": a.users, "services": a.services} {
			if v != nil {
				o.ObserveFloat64(age, v.keys.age(began).Seconds(), metric.WithAttributes(attribute.String("identity", of)))
			}
		}
		return nil
	}, age)
}

// age returns the time since the fetch of the current keys began. If there are no keys, it returns
// the time since the given time.
func (k *keys) age(since time.Time) time.Duration {
	if set := k.current.Load(); set != nil {
		since = set.asOf
	}
	return time.Since(since)
}
