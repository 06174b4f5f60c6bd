package issuer_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/porttest"
)

func start(t *testing.T) *issuer.Issuer {
	t.Helper()
	lis := porttest.Listen(t)
	i, err := issuer.Start(lis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	return i
}

// Package auth tests the documents, and that its services accept the tokens.
func TestTokensAreOfTheUserWhoAsked(t *testing.T) {
	t.Parallel()
	i, user := start(t), uuid.New()
	token, err := issuer.Ask(t.Context(), i.URL(), "acme", user, "admin")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var claims jwt.Claims
	var roles struct {
		Roles  []string `json:"roles"`
		Tenant string   `json:"tenant_id"`
	}
	if err := parsed.Claims(i.Keys(), &claims, &roles); err != nil {
		t.Fatal(err)
	}
	if err := claims.Validate(jwt.Expected{Issuer: i.URL(), Subject: user.String(), AnyAudience: jwt.Audience{issuer.Audience}}); err != nil {
		t.Error(err)
	}
	if len(roles.Roles) != 1 || roles.Roles[0] != "admin" || roles.Tenant != "acme" || claims.Expiry == nil {
		t.Errorf("roles %v, end %v", roles.Roles, claims.Expiry)
	}
}

func TestOnlyThisMachineIsServed(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	if i, err := issuer.Start(lis); err == nil {
		i.Close()
		t.Error("an issuer listens on every address")
	}
	i := start(t)
	port := i.URL()[strings.LastIndexByte(i.URL(), ':'):]
	for host, want := range map[string]int{
		"127.0.0.1" + port: http.StatusOK, "localhost" + port: http.StatusOK, "[::1]" + port: http.StatusOK,
		"rebound.example" + port: http.StatusForbidden, "127.0.0.1.example" + port: http.StatusForbidden, "rebound.example": http.StatusForbidden,
	} {
		if code, body := post(t, i, host, url.Values{"user": {uuid.NewString()}}); code != want {
			t.Errorf("as %s: %d %s, want %d", host, code, body, want)
		}
	}
}

func TestATokenNeedsAUser(t *testing.T) {
	t.Parallel()
	i := start(t)
	for _, form := range []url.Values{nil, {"user": {"root"}}, {"user": {strings.Repeat("a", 1<<20)}}} {
		if code, body := post(t, i, strings.TrimPrefix(i.URL(), "http://"), form); code != http.StatusBadRequest || !strings.Contains(body, "UUID") {
			t.Errorf("%d %s", code, body)
		}
	}
	if _, err := issuer.Ask(t.Context(), i.URL()+"/nowhere", "", uuid.New()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("elsewhere: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := issuer.Ask(gone, i.URL(), "", uuid.New()); err == nil {
		t.Error("a token for a caller who has gone")
	}
}

func post(t *testing.T, i *issuer.Issuer, host string, form url.Values) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, i.URL()+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all)
}
