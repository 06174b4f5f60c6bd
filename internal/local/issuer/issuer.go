// Package issuer is an OpenID Connect issuer for one machine. It gives a token to every caller on
// loopback. `make run` and tests use it.
//
// It serves the discovery document and the public keys, as every issuer does. It also serves POST
// /token, which real issuers have behind a login. It makes its keys at the start and holds them
// only in memory. So when the issuer ends, its tokens are no longer valid.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
)

const (
	// Audience is the audience of the tokens.
	Audience = "lockstep"
	// lifetime is how long a token is valid. It is enough for a day of work.
	lifetime = 12 * time.Hour
	// ioTimeout bounds each part of a request.
	ioTimeout = 5 * time.Second

	keysPath, tokenPath = "/keys", "/token"
)

// Issuer is a running issuer. Close it after the last use.
type Issuer struct {
	url    string
	server *http.Server

	mu     sync.Mutex
	public []jose.JSONWebKey
	signer jose.Signer
}

// Start serves on lis, and closes lis in the end. It refuses an address that other machines can
// reach.
func Start(lis net.Listener) (*Issuer, error) {
	if at, ok := lis.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		return nil, fmt.Errorf("an issuer for one machine must not listen on %s", at)
	}
	i := &Issuer{url: "http://" + lis.Addr().String()}
	if err := i.Rotate(); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.discover)
	mux.HandleFunc("GET "+keysPath, i.publish)
	mux.HandleFunc("POST "+tokenPath, i.answerToken)
	i.server = &http.Server{Handler: local(mux), ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, IdleTimeout: ioTimeout}
	go func() { _ = i.server.Serve(lis) }()
	return i, nil
}

// URL returns the address of the issuer, which is also its name.
func (i *Issuer) URL() string { return i.url }

// Close ends the issuer, and with it all its tokens.
func (i *Issuer) Close() error { return i.server.Close() }

// TenantClaim is the claim that names the tenant of a token.
const TenantClaim = "tenant_id"

// Mint returns a token of a user of a tenant with these roles.
func (i *Issuer) Mint(tenant string, user uuid.UUID, roles ...string) (string, error) {
	now := time.Now()
	return i.Sign(map[string]any{
		"iss": i.url, "aud": Audience, "sub": user.String(), TenantClaim: tenant, "roles": roles,
		"iat": now.Unix(), "exp": now.Add(lifetime).Unix(),
	})
}

// Sign returns a token with exactly these claims.
func (i *Issuer) Sign(claims map[string]any) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return jwt.Signed(i.signer).Claims(claims).Serialize()
}

// Rotate makes a key, publishes it, and signs with it from now on. The earlier keys stay
// published.
func (i *Issuer) Rotate() error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	id := uuid.NewString()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: private},
		(&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", id))
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signer = signer
	i.public = append(i.public, jose.JSONWebKey{Key: private.Public(), KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	return nil
}

// Revoke publishes only the newest key from now on.
func (i *Issuer) Revoke() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.public = i.public[len(i.public)-1:]
}

// Keys returns the published keys.
func (i *Issuer) Keys() jose.JSONWebKeySet {
	i.mu.Lock()
	defer i.mu.Unlock()
	return jose.JSONWebKeySet{Keys: slices.Clone(i.public)}
}

func (i *Issuer) discover(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{
		"issuer": i.url, "jwks_uri": i.url + keysPath, "token_endpoint": i.url + tokenPath,
		"id_token_signing_alg_values_supported": []jose.SignatureAlgorithm{jose.ES256},
	})
}

func (i *Issuer) publish(w http.ResponseWriter, _ *http.Request) { answer(w, i.Keys()) }

func answer(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document) //nolint:errchkjson // both documents can be encoded; it fails if the reader has gone
}
