package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

const (
	discoveryPath = "/.well-known/openid-configuration"
	// maxDocument bounds an answer of an issuer. Usual answers have 2 KiB.
	maxDocument = 256 << 10
	// maxRedirects bounds the redirects of one request.
	maxRedirects = 3
	// minRSABits is the least size of an RSA key, in bits. RFC 7518, section 3.3, forbids smaller
	// keys.
	minRSABits = 2048
)

// source is where an issuer publishes its keys. The issuer has a discovery document, which contains
// the address of a second document with the keys.
type source struct {
	issuer string
	local  bool // accepts loopback without TLS
	client *http.Client
}

func newSource(issuer string, local bool) source {
	s := source{issuer: issuer, local: local, client: &http.Client{}}
	s.client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errors.New("too many redirects")
		}
		return s.trusts(r.URL.String())
	}
	return s
}

// fetch returns the keys that the issuer signs with, by id.
func (s source) fetch(ctx context.Context) (map[string]jose.JSONWebKey, error) {
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := s.get(ctx, strings.TrimSuffix(s.issuer, "/")+discoveryPath, &about); err != nil {
		return nil, err
	}
	if about.Issuer != s.issuer {
		return nil, fmt.Errorf("%s%s is the document of another issuer: %.200q", s.issuer, discoveryPath, about.Issuer)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := s.get(ctx, about.Keys, &set); err != nil {
		return nil, err
	}
	if set.Keys == nil {
		return nil, fmt.Errorf("%.200s has no member keys", about.Keys)
	}
	return usable(set.Keys), nil
}

func (s source) trusts(address string) error {
	if err := checkURL(address, s.local); err != nil {
		return fmt.Errorf("the issuer's address %.200q %w", address, err)
	}
	return nil
}

func (s source) get(ctx context.Context, address string, into any) error {
	if err := s.trusts(address); err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Cache-Control", "no-cache") // a removed key must not live on in a cache
	// HTTP/2 would send the next request on the same connection, also if the network has lost that connection.
	r.Close = true
	response, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err == nil && len(body) > maxDocument {
		err = fmt.Errorf("has more than %d bytes", maxDocument)
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}

// usable returns the keys that can verify a token, by id. It ignores keys of other kinds, as RFC
// 7517 says.
func usable(raw []json.RawMessage) map[string]jose.JSONWebKey {
	byID := make(map[string]jose.JSONWebKey, len(raw))
	for _, r := range raw {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(r) == nil && key.KeyID != "" && signs(key) {
			byID[key.KeyID] = key
		}
	}
	return byID
}

func signs(key jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" {
		return false
	}
	if key.Algorithm != "" && !slices.Contains(algorithms, jose.SignatureAlgorithm(key.Algorithm)) {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey:
		return public.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return true
	}
	return false
}
