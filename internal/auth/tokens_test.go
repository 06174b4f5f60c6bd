package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
)

func TestValidTokens(t *testing.T) {
	t.Parallel()
	w := started(t)
	bob := Principal{Kind: User, User: alice, Tenant: eventing.DefaultTenant}
	admin := bob
	admin.Admin = true
	for name, tc := range map[string]struct {
		claims map[string]any
		want   Principal
	}{
		"plain":                 {nil, bob},
		"one of two audiences":  {map[string]any{"aud": []string{"other", issuer.Audience}}, bob},
		"expired within leeway": {map[string]any{"exp": time.Now().Add(-leeway / 2).Unix()}, bob},
		"not yet, by leeway":    {map[string]any{"nbf": time.Now().Add(leeway / 2).Unix(), "iat": time.Now().Add(leeway / 2).Unix()}, bob},
		"role":                  {map[string]any{"role": "admin"}, admin},
		"roles":                 {map[string]any{"roles": []string{"author", "admin"}}, admin},
		"Supabase's role":       {map[string]any{"app_metadata": map[string]any{"role": "admin"}}, admin},
		"Supabase's roles":      {map[string]any{"role": "authenticated", "app_metadata": map[string]any{"roles": []string{"admin"}}}, admin},
		"what users change":     {map[string]any{"user_metadata": map[string]any{"role": "admin"}}, bob},
		"other types":           {map[string]any{"role": 1, "roles": map[string]any{"admin": true}, "app_metadata": "admin"}, bob},
		"large":                 {map[string]any{"more": strings.Repeat("A", maxToken/2)}, bob},
		"almost":                {map[string]any{"role": "administrator", "roles": []any{"Admin", 1}}, bob},
	} {
		got, err := w.auth.Principal(t.Context(), http.Header{"Authorization": {"bearer " + w.sign(t, tc.claims)}})
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tc.want)
		}
	}
	if got, err := w.auth.Principal(t.Context(), http.Header{}); err != nil || got != (Principal{}) {
		t.Errorf("without a token: %+v, %v", got, err)
	}
}

// The ids of users are keys of rows: they must never change.
func TestSubjectsBecomeIDs(t *testing.T) {
	t.Parallel()
	const google, other = "https://issuer.example", "https://other.example"
	if got := userID(google, alice.String()); got != alice {
		t.Errorf("a UUID becomes %s", got)
	}
	if got := userID(google, "auth0|42").String(); got != "55dd76e9-b193-577e-8fcd-5fba61a72a8f" {
		t.Errorf("a text becomes %s", got)
	}
	seen := map[uuid.UUID]bool{}
	letters := uuid.MustParse("0190a5d0-0000-7000-8000-0000000000ab")
	hashed := userID(google, "1")
	for _, sub := range []string{
		"1", "2", "{" + alice.String() + "}", "urn:uuid:" + alice.String(), strings.ReplaceAll(alice.String(), "-", ""),
		strings.ToUpper(letters.String()), hashed.String(),
	} {
		seen[userID(google, sub)], seen[userID(other, sub)] = true, true
	}
	if len(seen) != 14 || seen[alice] || seen[letters] {
		t.Errorf("14 subjects became %d ids: %v", len(seen), seen)
	}
}

// A row that is not there, and a field that is not set, have the nil UUID. A user may have it for an id, too.
func TestNoUserActsForTheNilUUID(t *testing.T) {
	t.Parallel()
	p := Principal{Kind: User, User: userID("https://issuer.example", uuid.Nil.String())}
	if p.MayActFor(uuid.Nil) {
		t.Errorf("%+v may act for the nil UUID", p)
	}
}

func TestBadTokens(t *testing.T) {
	t.Parallel()
	w := started(t)
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	published := w.issuer.Keys().Keys[0]
	public, err := x509.MarshalPKIXPublicKey(published.Key)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(published)
	if err != nil {
		t.Fatal(err)
	}
	kid := map[jose.HeaderKey]any{"kid": published.KeyID}
	with := func(name jose.HeaderKey, value any) map[jose.HeaderKey]any {
		return map[jose.HeaderKey]any{"kid": published.KeyID, name: value}
	}
	valid := w.mint(t)
	parts := strings.Split(valid, ".")
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	for name, token := range map[string]string{
		"expired":             w.sign(t, map[string]any{"exp": in(-2 * leeway)}),
		"not yet valid":       w.sign(t, map[string]any{"nbf": in(2 * leeway)}),
		"issued later":        w.sign(t, map[string]any{"iat": in(2 * leeway)}),
		"other issuer":        w.sign(t, map[string]any{"iss": w.issuer.URL() + "/"}),
		"no issuer":           w.sign(t, map[string]any{"iss": nil}),
		"other audience":      w.sign(t, map[string]any{"aud": serviceAudience}),
		"no audience":         w.sign(t, map[string]any{"aud": nil}),
		"no end":              w.sign(t, map[string]any{"exp": nil}),
		"end of a wrong type": w.sign(t, map[string]any{"exp": "never"}),
		"no subject":          w.sign(t, map[string]any{"sub": nil}),
		"none":                segment(`{"alg":"none","kid":"`+published.KeyID+`"}`) + "." + parts[1] + ".",
		"None":                segment(`{"alg":"None","kid":"`+published.KeyID+`"}`) + "." + parts[1] + "." + parts[2],
		"HS256, public key":   w.forge(t, jose.HS256, public, kid),
		"HS256, PEM":          w.forge(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), kid),
		"HS256, JWK":          w.forge(t, jose.HS256, document, kid),
		"unknown key":         w.forge(t, jose.ES256, own, map[jose.HeaderKey]any{"kid": "of somebody else"}),
		"no key id":           w.forge(t, jose.ES256, own, nil),
		"another's key":       w.forge(t, jose.ES256, own, kid),
		"with its own key":    w.forge(t, jose.ES256, own, with("jwk", jose.JSONWebKey{Key: own.Public(), KeyID: published.KeyID})),
		"with jku":            w.forge(t, jose.ES256, own, with("jku", "http://127.0.0.1:1/keys")),
		"with x5u":            w.forge(t, jose.ES256, own, with("x5u", "http://127.0.0.1:1/chain")),
		"other claims":        parts[0] + "." + segment(`{"sub":"x"}`) + "." + parts[2],
		"no signature":        parts[0] + "." + parts[1] + ".",
		"one part":            parts[0],
		"encrypted":           valid + "." + parts[0] + "." + parts[1],
		"not base64":          "*." + parts[1] + "." + parts[2],
		"a blank":             valid + " ",
		"JSON":                `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
	} {
		if err := w.ask(t.Context(), token); codeOf(err) != problem.CodeUnauthenticated {
			t.Errorf("%s: %v, want UNAUTHENTICATED", name, err)
		}
	}
	if err := w.ask(t.Context(), valid); err != nil {
		t.Errorf("a valid one: %v", err)
	}
}

func segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// The signature is valid, and so the header is the only fault.
func TestCriticalHeadersAreRefused(t *testing.T) {
	t.Parallel()
	w, private := started(t), newRSA(t, 2048)
	w.auth.users.keys.current.Store(&keySet{map[string]jose.JSONWebKey{"k": {Key: private.Public(), KeyID: "k"}}, time.Now()})
	for _, crit := range []bool{false, true} {
		header := map[jose.HeaderKey]any{"kid": "k"}
		if crit {
			header["crit"], header["b64"] = []string{"b64"}, true
		}
		err := w.ask(t.Context(), w.forge(t, jose.RS256, private, header))
		if crit != (codeOf(err) == problem.CodeUnauthenticated) {
			t.Errorf("crit %t: %v", crit, err)
		}
	}
}

func newRSA(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Each key signs with each algorithm; the keys say which of them they are for.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	w, any2048, short := started(t), newRSA(t, 2048), newRSA(t, 1024)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var raw []json.RawMessage
	for id, key := range map[string]jose.JSONWebKey{
		"rsa": {Key: any2048.Public()}, "rs256": {Key: any2048.Public(), Algorithm: "RS256", Use: "sig"},
		"ed": {Key: edwards.Public()}, "encrypts": {Key: any2048.Public(), Use: "enc"},
		"rs512": {Key: any2048.Public(), Algorithm: "RS512"}, "short": {Key: short.Public()}, "p384": {Key: p384.Public()},
		"secret": {Key: []byte("0123456789abcdef0123456789abcdef")},
	} {
		key.KeyID = id
		document, err := key.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, document)
	}
	raw = append(raw, json.RawMessage(`{"kty":"new"}`), json.RawMessage(`[]`))
	w.auth.users.keys.current.Store(&keySet{usable(raw), time.Now()})
	for _, tc := range []struct {
		id  string
		alg jose.SignatureAlgorithm
		key any
		ok  bool
	}{
		{"rsa", jose.RS256, any2048, true},
		{"rsa", jose.PS256, any2048, true},
		{"rsa", jose.RS512, any2048, false},
		{"rs256", jose.RS256, any2048, true},
		{"rs256", jose.PS256, any2048, false},
		{"ed", jose.EdDSA, edwards, true},
		{"rsa", jose.EdDSA, edwards, false},
		{"encrypts", jose.RS256, any2048, false},
		{"rs512", jose.RS256, any2048, false},
		{"short", jose.RS256, short, false},
		{"p384", jose.ES384, p384, false},
		{"secret", jose.HS256, []byte("0123456789abcdef0123456789abcdef"), false},
	} {
		err := w.ask(t.Context(), w.forge(t, tc.alg, tc.key, map[jose.HeaderKey]any{"kid": tc.id}))
		if (err == nil) != tc.ok || !tc.ok && codeOf(err) != problem.CodeUnauthenticated {
			t.Errorf("key %s, %s: %v, want accepted: %t", tc.id, tc.alg, err, tc.ok)
		}
		// Each refused one has asked for new keys: put the test's own back.
		w.auth.users.keys.current.Store(&keySet{usable(raw), time.Now()})
	}
}
