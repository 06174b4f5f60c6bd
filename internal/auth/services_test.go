package auth

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
)

func TestServices(t *testing.T) {
	t.Parallel()
	w := started(t)
	sign := func(changes map[string]any) string {
		all := map[string]any{"aud": serviceAudience, "email": account, "email_verified": true, "sub": "1042"}
		maps.Copy(all, changes)
		return "Bearer " + w.sign(t, all)
	}
	valid := sign(nil)
	// As Cloud Run passes it on.
	unsigned := valid[:strings.LastIndexByte(valid, '.')] + removedSignature
	service, user := Principal{Kind: Service, Service: account, Tenant: eventing.DefaultTenant}, Principal{Kind: User, User: alice, Tenant: eventing.DefaultTenant}
	stranger := sign(map[string]any{"email": "stranger@other.iam.gserviceaccount.com"})
	ended := sign(map[string]any{"exp": 1})
	const ours, platforms, users = "X-Service-Authorization", "X-Serverless-Authorization", "Authorization"
	for name, tc := range map[string]struct {
		headers map[string]string
		want    Principal
		code    problem.Code
	}{
		"on Cloud Run":                 {map[string]string{ours: valid, platforms: unsigned}, service, noProblem},
		"without Cloud Run":            {map[string]string{ours: valid, platforms: valid}, service, noProblem},
		"by ours alone":                {map[string]string{ours: valid}, service, noProblem},
		"by the platform's":            {map[string]string{platforms: valid}, service, noProblem},
		"ours is bad":                  {map[string]string{ours: ended, platforms: valid}, Principal{}, problem.CodeUnauthenticated},
		"unsigned":                     {map[string]string{platforms: unsigned}, Principal{}, noProblem},
		"unsigned as ours":             {map[string]string{ours: unsigned}, Principal{}, noProblem},
		"expired":                      {map[string]string{ours: ended}, Principal{}, problem.CodeUnauthenticated},
		"for another service":          {map[string]string{ours: sign(map[string]any{"aud": "https://catalog.example"})}, Principal{}, problem.CodeUnauthenticated},
		"other account":                {map[string]string{ours: stranger}, Principal{}, problem.CodeDenied},
		"no account":                   {map[string]string{ours: sign(map[string]any{"email": nil})}, Principal{}, problem.CodeDenied},
		"account not verified":         {map[string]string{ours: sign(map[string]any{"email_verified": false})}, Principal{}, problem.CodeDenied},
		"verified is a text":           {map[string]string{ours: sign(map[string]any{"email_verified": "true"})}, Principal{}, problem.CodeUnauthenticated},
		"a user's token":               {map[string]string{ours: "Bearer " + w.mint(t)}, Principal{}, problem.CodeUnauthenticated},
		"in the user's header":         {map[string]string{users: valid}, Principal{}, problem.CodeUnauthenticated},
		"for a user":                   {map[string]string{users: "Bearer " + w.mint(t), ours: valid}, user, noProblem},
		"bad user, good service":       {map[string]string{users: "Bearer x", ours: valid}, Principal{}, problem.CodeUnauthenticated},
		"a name that claims a service": {map[string]string{users: "Bearer " + w.sign(t, map[string]any{"email": account, "email_verified": true})}, user, noProblem},
	} {
		h := http.Header{}
		for header, value := range tc.headers {
			h.Set(header, value)
		}
		if got, err := w.auth.Principal(t.Context(), h); got != tc.want || codeOf(err) != tc.code {
			t.Errorf("%s: %+v, %v; want %+v, code %d", name, got, err, tc.want, tc.code)
		}
	}
	two := http.Header{ours: {valid, valid}}
	if got, err := w.auth.Principal(t.Context(), two); codeOf(err) != problem.CodeUnauthenticated {
		t.Errorf("two tokens: %+v, %v", got, err)
	}
}

// Without a list of accounts the headers of services mean nothing, and no token in them
// is a fault: what stands before the service may send one.
func TestNoServicesAreKnownWithoutAList(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.auth.services = nil
	for _, token := range []string{"Bearer x", "Bearer " + w.sign(t, map[string]any{"aud": serviceAudience, "email": account, "email_verified": true})} {
		h := http.Header{"X-Service-Authorization": {token}, "X-Serverless-Authorization": {token}}
		if got, err := w.auth.Principal(t.Context(), h); got != (Principal{}) || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
