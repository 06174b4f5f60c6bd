package authtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
)

const (
	audience        = "lockstep"
	serviceAudience = "https://video.example"
	account         = "catalog@p.iam.gserviceaccount.com"
)

// Owner is the user that owns the rows of the requests.
var Owner = uuid.MustParse("00000000-0000-4000-8000-00000000000a")

// kind is the part of an identity that decides the outcome of a call.
type kind int

const (
	none kind = iota
	invalid
	other
	stranger // the owner's subject and the role admin, in another tenant
	owner
	admin
	service
)

// identity is a caller, with the headers that prove its identity.
type identity struct {
	name   string
	kind   kind
	header http.Header
}

// Issuers are the issuers of users and of services, with the identities of a test.
type Issuers struct {
	// Callers is the authenticator of the service under test.
	Callers    *auth.Authenticator
	identities []identity
	services   issuer
}

// New starts issuers for the test, and an authenticator that trusts them as in a
// deployment.
func New(t testing.TB) Issuers {
	t.Helper()
	users := newIssuer(t)
	services := newIssuer(t)
	log := slog.New(slog.DiscardHandler)
	callers, err := auth.New(t.Context(), auth.Config{
		Issuer: users.url, Audience: audience, ServiceIssuer: services.url, ServiceAudience: serviceAudience, Services: []string{account},
		TenantClaim: "tenant_id",
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- callers.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	elsewhere := map[string]any{"role": "admin", "tenant_id": "another"}
	own := users.sign(users.claims(audience, Owner.String(), nil))
	i := Issuers{Callers: callers, services: services}
	i.identities = append(users.invalid(),
		identity{"none", none, nil},
		identity{"other user", other, bearer(users.sign(users.claims(audience, uuid.NewString(), nil)))},
		identity{"other tenant", stranger, bearer(users.sign(users.claims(audience, Owner.String(), elsewhere)))},
		identity{"owner", owner, bearer(own)},
		identity{"admin", admin, bearer(users.sign(users.claims(audience, uuid.NewString(), map[string]any{"role": "admin"})))},
		identity{"service", service, http.Header{"X-Service-Authorization": {"Bearer " + i.ServiceToken(true)}}},
	)
	return i
}

// ServiceToken returns a token of the service for https://video.example, in one of the two formats
// of Google's metadata server. Only the full format has the email of the account.
func (i Issuers) ServiceToken(full bool) string {
	i.services.Helper()
	var email map[string]any
	if full {
		email = map[string]any{"email": account, "email_verified": true}
	}
	return i.services.sign(i.services.claims(serviceAudience, "1", email))
}

// Header returns the headers that prove the identity with that name: "owner", "other user", "other
// tenant", "admin", "service" or "unknown key id".
func (i Issuers) Header(name string) http.Header {
	at := slices.IndexFunc(i.identities, func(who identity) bool { return who.name == name })
	return i.identities[at].header
}

// invalid returns identities whose tokens are not valid. Each token has one fault.
func (i issuer) invalid() (found []identity) {
	i.Helper()
	claims := func(changes map[string]any) map[string]any { return i.claims(audience, Owner.String(), changes) }
	hour := time.Now().Add(time.Hour).Unix()
	past := time.Now().Add(-time.Hour).Unix()
	for name, token := range map[string]string{
		"expired":                   i.sign(claims(map[string]any{"exp": past})),
		"not yet valid":             i.sign(claims(map[string]any{"nbf": hour})),
		"wrong issuer":              i.sign(claims(map[string]any{"iss": "https://issuer.example"})),
		"wrong audience":            i.sign(claims(map[string]any{"aud": serviceAudience})),
		"alg none":                  i.unsigned(claims(nil)),
		"HS256 with the public key": i.signBy(jose.HS256, i.publicKey(), keyID, claims(nil)),
		"unknown key id":            i.signBy(jose.ES256, newKey(i), "unknown", claims(nil)),
		"signature of another key":  i.signBy(jose.ES256, newKey(i), keyID, claims(nil)),
		"no tenant":                 i.sign(claims(map[string]any{"tenant_id": nil})),
		"no token at all":           "x",
	} {
		found = append(found, identity{name, invalid, bearer(token)})
	}
	return found
}

func (i issuer) unsigned(claims map[string]any) string {
	i.Helper()
	part := func(v any) string {
		encoded, err := json.Marshal(v)
		if err != nil {
			i.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(encoded)
	}
	return part(map[string]string{"alg": "none", "kid": keyID}) + "." + part(claims) + "."
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
