package command

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"example.com/lockstep/internal/porttest"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		code   int
		says   string
	}{
		"ready": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				w.WriteHeader(http.StatusNotFound)
			}
		}, 0, ""},
		"unready": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"checks":{"database":"failed"}}`))
		}, 1, `not ready: 503 Service Unavailable: {"checks":{"database":"failed"}}`},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 1, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(test.answer)
			defer server.Close()
			code, stdout, stderr := run(t, nil, map[string]string{"PORT": portOf(t, server.URL)}, "health")
			if code != test.code || stdout != "" || !strings.Contains(stderr, test.says) || (code == 0) != (stderr == "") {
				t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
		})
	}
}

func TestHealthAsksTheAdminPort(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	closed := strconv.Itoa(porttest.Port(t))
	if code, _, stderr := run(t, nil, map[string]string{"PORT": closed, "ADMIN_PORT": portOf(t, server.URL)}, "health"); code != 0 {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
	if code, _, stderr := run(t, nil, map[string]string{"PORT": portOf(t, server.URL), "ADMIN_PORT": closed}, "health"); code != 1 {
		t.Errorf("where only PORT answers: code %d, stderr %q", code, stderr)
	}
}

func TestHealthWithoutAServer(t *testing.T) {
	t.Parallel()
	for _, port := range []string{strconv.Itoa(porttest.Port(t)), "http"} {
		code, _, stderr := run(t, nil, map[string]string{"PORT": port}, "health")
		if code != 1 || !strings.Contains(stderr, map[bool]string{true: "PORT", false: "not ready"}[port == "http"]) {
			t.Errorf("port %s: code %d, stderr %q", port, code, stderr)
		}
	}
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}
