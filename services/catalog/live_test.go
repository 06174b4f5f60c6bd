package catalog

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/live"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/serve"
)

// TestLivePageIsBehindTheAdminPort: callers of the API do not reach it, and it has no
// buttons. It sets the variable by which the Pub/Sub client finds the emulator.
func TestLivePageIsBehindTheAdminPort(t *testing.T) {
	t.Setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
	listen := func() net.Listener {
		lis := porttest.Listen(t)
		return lis
	}
	cfg := Config{
		Config:           serve.Config{DatabaseURL: "postgres://nobody@127.0.0.1:1/none", Project: "test", Auth: auth.Config{Local: true}},
		VideoServiceAddr: "127.0.0.1:1", Live: true,
	}
	if err := Serve(t.Context(), cfg, listen(), quiet()); err == nil || !strings.Contains(err.Error(), "ADMIN_PORT") {
		t.Errorf("without an admin port: %v", err)
	}
	port, admin := listen(), listen()
	cfg.Admin = admin
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, cfg, port, quiet()) }()

	if code, _ := fetch(t, "http://"+port.Addr().String()+"/live/"); code != http.StatusNotFound {
		t.Errorf("the API's port answers %d", code)
	}
	code, page := fetch(t, "http://"+admin.Addr().String()+"/live/")
	if code != http.StatusOK || !strings.Contains(page, "catalog, live") || strings.Contains(page, "<button") {
		t.Errorf("%d\n%s", code, page)
	}
	if code, _ := fetch(t, "http://"+admin.Addr().String()+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz next to the page: %d", code)
	}
	frames, err := http.Get("http://" + admin.Addr().String() + "/live/frames")
	if err != nil {
		t.Fatal(err)
	}
	defer frames.Body.Close()
	var names []string
	for lines := bufio.NewScanner(frames.Body); lines.Scan() && names == nil; {
		text, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		var f live.Frame
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err)
		}
		for _, s := range f.Stages {
			names = append(names, s.Name)
		}
	}
	if got := strings.Join(names, ", "); got != "Broker, Inbox, Projection, Fresh reads" {
		t.Errorf("stages %q", got)
	}
	stop() // with the stream open
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func fetch(t *testing.T, url string) (code int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
