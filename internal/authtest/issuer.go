// Package authtest calls every operation of a service with every kind of identity, and compares the
// answers with the rules of access (see [Matrix]).
package authtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// issuer is an OpenID Connect issuer with one key. It uses TLS as in a deployment, so that the
// authenticator need not be local. A local authenticator without service accounts would let callers
// without an identity call the operations for services.
type issuer struct {
	testing.TB
	url string
	key *ecdsa.PrivateKey
}

const keyID = "the key"

// newIssuer returns an issuer that lives as long as the test.
func newIssuer(t testing.TB) issuer {
	t.Helper()
	i := issuer{TB: t, key: newKey(t)}
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	i.url = server.URL
	serve := func(path string, document any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(document) })
	}
	serve("/.well-known/openid-configuration", map[string]string{"issuer": i.url, "jwks_uri": i.url + "/keys"})
	serve("/keys", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: keyID, Use: "sig"}}})
	if !server.Certificate().Equal(trusted) {
		t.Fatal("this process does not trust the issuer's certificate")
	}
	return i
}

// trusted is the certificate that every TLS server of package httptest uses. Its initializer makes
// the default transport trust this certificate before the transport opens a connection.
var trusted = func() *x509.Certificate {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	http.DefaultTransport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
	return server.Certificate()
}()

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// claims returns the claims of a valid token for the audience, with changes.
func (i issuer) claims(audience, subject string, changes map[string]any) map[string]any {
	claims := map[string]any{
		"iss": i.url, "aud": audience, "sub": subject, "tenant_id": "default",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, changes)
	return claims
}

func (i issuer) sign(claims map[string]any) string {
	i.Helper()
	return i.signBy(jose.ES256, i.key, keyID, claims)
}

func (i issuer) signBy(algorithm jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	i.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		i.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		i.Fatal(err)
	}
	return token
}

// publicKey returns the issuer's public key in PEM. Everybody can have this key.
func (i issuer) publicKey() []byte {
	i.Helper()
	der, err := x509.MarshalPKIXPublicKey(i.key.Public())
	if err != nil {
		i.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}
