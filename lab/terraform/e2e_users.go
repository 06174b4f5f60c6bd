package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"example.com/lockstep/internal/local/issuer"
)

// These constants name the users' issuer of the project. On this machine p.users replaces it.
const (
	authIssuer   = "https://issuer.example.com/auth/v1"
	authAudience = "authenticated"
)

func startIssuer() (*issuer.Issuer, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return issuer.Start(lis)
}

// signIn expects that a service has the issuer of the project, and replaces it by the issuer on
// this machine.
func (p *testProject) signIn(environment map[string]string) error {
	for variable, values := range map[string]struct{ cloud, here string }{
		"AUTH_ISSUER": {authIssuer, p.users.URL()}, "AUTH_AUDIENCE": {authAudience, issuer.Audience},
	} {
		if given := environment[variable]; given != values.cloud {
			return fmt.Errorf("%s = %q, want %q", variable, given, values.cloud)
		}
		environment[variable] = values.here
	}
	return nil
}

// refusesStrangers expects that the service refuses a request without a token, and that the port of
// its API does not serve its metrics.
func (i *instance) refusesStrangers(ctx context.Context) error {
	for path, want := range map[string]int{"/v1/videos": http.StatusUnauthorized, "/metrics": http.StatusNotFound} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+i.addr+path, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			return fmt.Errorf("%s of %s without a token: %s, want %d", path, i.name, answer.Status, want)
		}
	}
	return nil
}
