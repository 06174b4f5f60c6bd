package auth

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// leeway is how far the clocks of the issuer and of this machine may differ.
const leeway = 30 * time.Second

// algorithms are the accepted algorithms. All of them are asymmetric. With a symmetric algorithm,
// every service that verifies tokens could also issue tokens, and the verifier would take a public
// key for a secret.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.EdDSA}

type verifier struct {
	issuer, audience string
	keys             *keys
}

func newVerifier(issuer, audience string, local bool, places chan struct{}, log *slog.Logger) *verifier {
	return &verifier{issuer, audience, newKeys(newSource(issuer, local), places, log)}
}

// verify returns the subject of a valid token, and stores the token's claims in claims.
//
// Keys that the token's header names or contains (jku, jwk, x5u, x5c) are ignored. Only the
// issuer's own keys count.
func (v *verifier) verify(ctx context.Context, token string, claims any) (subject string, err error) {
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return "", Unauthenticated(err)
	}
	header := parsed.Headers[0]
	if _, critical := header.ExtraHeaders["crit"]; critical || header.KeyID == "" {
		return "", Unauthenticated(errors.New("the token's header has crit, or no kid"))
	}
	// The claims are checked before the signature, so that an expired token of a key that is gone
	// causes no request to the issuer. This order is safe, because the signature covers the bytes
	// that were checked.
	var said jwt.Claims
	if err := parsed.UnsafeClaimsWithoutVerification(&said); err != nil {
		return "", Unauthenticated(err)
	}
	if err := v.check(said); err != nil {
		return "", Unauthenticated(err)
	}
	key, err := v.keys.find(ctx, header.KeyID)
	if err != nil {
		return "", err
	}
	if key.Algorithm != "" && key.Algorithm != header.Algorithm {
		return "", Unauthenticated(errors.New("the token's algorithm is not that of its key"))
	}
	if err := parsed.Claims(key.Key, claims); err != nil {
		return "", Unauthenticated(err)
	}
	return said.Subject, nil
}

func (v *verifier) check(c jwt.Claims) error {
	if c.Expiry == nil || c.Subject == "" {
		return errors.New("the token has no exp, or no sub")
	}
	return c.ValidateWithLeeway(jwt.Expected{Issuer: v.issuer, AnyAudience: jwt.Audience{v.audience}}, leeway)
}
