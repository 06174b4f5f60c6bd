package auth

import (
	"net/http"
	"strings"
	"testing"

	"example.com/lockstep/internal/problem"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	w := started(t)
	valid := "Bearer " + w.mint(t)
	for name, values := range map[string][]string{
		"twice":        {valid, valid},
		"empty":        {""},
		"Basic":        {"Basic " + valid[len("Bearer "):]},
		"no token":     {"Bearer "},
		"no scheme":    {valid[len("Bearer "):]},
		"two blanks":   {"Bearer  " + valid[len("Bearer "):]},
		"two in one":   {valid + ", " + valid},
		"over 8 KiB":   {"Bearer " + w.sign(t, map[string]any{"more": strings.Repeat("A", maxToken)})},
		"a line break": {valid + "\r\nX: y"},
	} {
		p, err := w.auth.Principal(t.Context(), http.Header{"Authorization": values})
		if codeOf(err) != problem.CodeUnauthenticated || p != (Principal{}) {
			t.Errorf("%s: %+v, %v; want UNAUTHENTICATED", name, p, err)
		}
	}
}

func FuzzPrincipal(f *testing.F) {
	w := started(f)
	f.Add("Authorization", "Bearer "+w.mint(f))
	f.Add("Authorization", "Bearer "+w.sign(f, map[string]any{"exp": nil}))
	f.Add("X-Service-Authorization", "Bearer "+w.sign(f, map[string]any{"aud": serviceAudience, "email": account}))
	f.Add("X-Serverless-Authorization", "bearer a.b.SIGNATURE_REMOVED_BY_GOOGLE")
	f.Fuzz(func(t *testing.T, name, value string) {
		p, err := w.auth.Principal(t.Context(), http.Header{http.CanonicalHeaderKey(name): {value}})
		switch codeOf(err) {
		case noProblem, problem.CodeUnauthenticated, problem.CodeDenied, problem.CodeUnavailable:
		default:
			t.Errorf("%s: %q: %v", name, value, err)
		}
		if p.Kind == Everyone || err != nil && p != (Principal{}) {
			t.Errorf("%s: %q: %+v, %v", name, value, p, err)
		}
	})
}
