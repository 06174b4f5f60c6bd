package connect_test

import (
	"fmt"
	"net/http"
	"testing"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/authtest"
	"example.com/lockstep/internal/connect"
)

// TestTheCalleeKnowsItsCaller: the called service takes the caller's headers for a service
// of the system. The metadata server gives a token without an email to others.
func TestTheCalleeKnowsItsCaller(t *testing.T) {
	issuers := authtest.New(t)
	full, standard := issuers.ServiceToken(true), issuers.ServiceToken(false)
	sent := connect.Sent(t, func(w http.ResponseWriter, r *http.Request) {
		token := standard
		if r.URL.Query().Get("format") == "full" {
			token = full
		}
		fmt.Fprintln(w, token)
	})
	if caller, err := issuers.Callers.Principal(t.Context(), sent); err != nil || caller.Kind != auth.Service || caller.Service == "" {
		t.Errorf("the caller is %+v, %v; want a service", caller, err)
	}
}
