package serve_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"example.com/lockstep/internal/auth"
)

// A route or a method without a rule, or a rule without its operation, ends Run before it
// serves.
func TestNothingIsServedWithoutARule(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(*service)
		names   string
	}{
		"route":  {func(s *service) { s.rest.Get("/v1/new", nothing) }, "GET /v1/new has no rule"},
		"method": {func(s *service) { echo(nil).register(s.grpc) }, "/test.Echo/Say has no rule"},
		"rule":   {func(s *service) { s.rules["GET /v1/old"] = auth.Users }, "GET /v1/old has a rule and is not registered"},
	} {
		s := newService(io.Discard)
		server := s.server() // before the operation is there
		tc.prepare(s)
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		err = server.Run(t.Context(), lis, func(context.Context) error {
			t.Errorf("%s: a loop began", name)
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), tc.names) {
			t.Errorf("%s: %v, want %q", name, err, tc.names)
		}
		if _, err := lis.Accept(); err == nil {
			t.Errorf("%s: the listener is open", name)
		}
	}
}

func nothing(http.ResponseWriter, *http.Request) {}
