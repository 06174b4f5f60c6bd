package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// documents are what an issuer answers, by path; a function has the issuer's address.
type documents map[string]func(w http.ResponseWriter, address string)

func serveDocuments(t *testing.T, all documents) source {
	t.Helper()
	var address string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s: Cache-Control is %q: a cache could keep a key that the issuer has removed", r.URL.Path, got)
		}
		document, ok := all[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		document(w, address)
	}))
	t.Cleanup(server.Close)
	address = server.URL
	return newSource(address, true)
}

func text(format string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, address string) {
		fmt.Fprint(w, strings.ReplaceAll(format, "ISSUER", address))
	}
}

func redirect(to string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, address string) {
		w.Header().Set("Location", strings.ReplaceAll(to, "ISSUER", address))
		w.WriteHeader(http.StatusFound)
	}
}

func TestDocumentsOfAnIssuer(t *testing.T) {
	t.Parallel()
	about, keys := text(`{"issuer":"ISSUER","jwks_uri":"ISSUER/keys","more":{}}`), text(`{"keys":[]}`)
	for name, tc := range map[string]struct {
		documents documents
		fault     string
	}{
		"good":           {documents{discoveryPath: about, "/keys": keys}, ""},
		"moved":          {documents{discoveryPath: redirect("ISSUER/about"), "/about": about, "/keys": keys}, ""},
		"other issuer":   {documents{discoveryPath: text(`{"issuer":"https://other.example","jwks_uri":"ISSUER/keys"}`), "/keys": keys}, "another issuer"},
		"no issuer":      {documents{discoveryPath: text(`{"jwks_uri":"ISSUER/keys"}`), "/keys": keys}, "another issuer"},
		"no address":     {documents{discoveryPath: text(`{"issuer":"ISSUER"}`), "/keys": keys}, "must be a URL"},
		"plain text":     {documents{discoveryPath: text(`{"issuer":"ISSUER","jwks_uri":"http://keys.example/"}`)}, "must begin with https"},
		"a file":         {documents{discoveryPath: text(`{"issuer":"ISSUER","jwks_uri":"file:///etc/passwd"}`)}, "must be a URL"},
		"moved in plain": {documents{discoveryPath: about, "/keys": redirect("http://keys.example/")}, "must begin with https"},
		"three steps":    {documents{discoveryPath: about, "/keys": redirect("ISSUER/1"), "/1": redirect("ISSUER/2"), "/2": redirect("ISSUER/3"), "/3": keys}, ""},
		"four steps": {documents{discoveryPath: about, "/keys": redirect("ISSUER/1"), "/1": redirect("ISSUER/2"), "/2": redirect("ISSUER/3"),
			"/3": redirect("ISSUER/4"), "/4": keys}, "too many redirects"},
		"in a circle":       {documents{discoveryPath: about, "/keys": redirect("ISSUER/keys")}, "too many redirects"},
		"not there":         {documents{}, "404"},
		"a page":            {documents{discoveryPath: text("<html>")}, "invalid character"},
		"without keys":      {documents{discoveryPath: about, "/keys": text(`{}`)}, "no member keys"},
		"too long":          {documents{discoveryPath: about, "/keys": text(`{"keys":[],"x":"` + strings.Repeat("x", maxDocument) + `"}`)}, "more than 262144 bytes"},
		"a long one, below": {documents{discoveryPath: about, "/keys": text(`{"keys":[],"x":"` + strings.Repeat("x", maxDocument-100) + `"}`)}, ""},
	} {
		found, err := serveDocuments(t, tc.documents).fetch(t.Context())
		switch {
		case tc.fault == "" && (err != nil || found == nil):
			t.Errorf("%s: %v", name, err)
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%s: %v, want %q", name, err, tc.fault)
		}
	}
}

func TestADocumentWithoutEndIsNotReadOn(t *testing.T) {
	t.Parallel()
	const offered = 64 << 20
	sent := make(chan int, 1)
	s := serveDocuments(t, documents{discoveryPath: func(w http.ResponseWriter, _ string) {
		n := 0
		for n < offered {
			wrote, err := w.Write(make([]byte, 64<<10))
			n += wrote
			if err != nil {
				break
			}
		}
		sent <- n
	}})
	if _, err := s.fetch(t.Context()); err == nil {
		t.Error("taken")
	}
	// Both sides of a connection have buffers.
	if n := <-sent; n > offered/2 {
		t.Errorf("%d bytes were read", n)
	}
}

// A process that is not local takes no address without TLS, not even of its own machine.
func TestPlainTextIsForLaptops(t *testing.T) {
	t.Parallel()
	s := serveDocuments(t, documents{
		discoveryPath: text(`{"issuer":"ISSUER","jwks_uri":"ISSUER/keys"}`), "/keys": text(`{"keys":[]}`),
	})
	s.local = false
	if _, err := s.fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("%v, want a complaint about https", err)
	}
}

func TestAFetchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := serveDocuments(t, documents{discoveryPath: func(http.ResponseWriter, string) { cancel(); <-ctx.Done() }})
	if _, err := s.fetch(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("%v", err)
	}
}
