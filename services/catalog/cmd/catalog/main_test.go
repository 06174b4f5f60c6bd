package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/attack"
	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/local/variables"
	"example.com/lockstep/internal/porttest"
)

func TestMain(m *testing.M) {
	variables.Forget()
	m.Run()
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args        string
		code        int
		out, errOut string
	}{
		{"--help", 0, "usage: catalog", ""},
		{"-h", 0, "usage: catalog", ""},
		{"help", 0, "usage: catalog", ""},
		{"serve --help", 0, "usage: catalog", ""},
		{"migrate --help", 0, "usage: catalog", ""},
		{"version", 0, "catalog " + command.Version + " (commit ", ""},
		{"--version", 0, "catalog " + command.Version + " (commit ", ""},
		{"", 1, "", "VIDEO_SERVICE_ADDR is required"},
		{"serve", 1, "", "DATABASE_URL is required"},
		{"migrate", 1, "", "DATABASE_URL is required"},
		{"destroy", 2, "", "unknown command"},
		{"serve now", 2, "", `unexpected argument "now"`},
		{"--fast", 2, "", "-fast"},
		{"--user-rate=-1", 2, "", "-user-rate"},
		{"--cors-origin=*", 2, "", "-cors-origin"},
		{"serve --user-rate=0 --cors-origin=https://app.example", 1, "", "DATABASE_URL is required"},
		{"--help", 0, "-cors-origin value", ""},
		{"--max-waiting-reads=-1", 2, "", "-max-waiting-reads"},
		{"--max-waiting-reads=500", 1, "", "DATABASE_URL is required"},
		{"--help", 0, "max-waiting-reads", ""},
		{"serve --inbox-retention 24h", 2, "", "at least 192h"},
		{"serve --inbox-retention 200h", 1, "", "DATABASE_URL is required"},
		{"--help", 0, "-inbox-retention value", ""},
		{"serve --engagement-start latest", 2, "", "resume, earliest, or how long"},
		{"serve --engagement-start=10m --deployment=one", 1, "", "DATABASE_URL is required"},
		{"--help", 0, "-engagement-start value", ""},
		{"serve --reconcile-interval=-1h", 2, "", "must not be negative"},
		{"serve --reconcile-interval=0", 1, "", "DATABASE_URL is required"},
		{"--help", 0, "-reconcile-interval duration", ""},
		{"offset", 2, "", "one of reset, show"},
		{"offset help", 0, "reset --to POSITION", ""},
	} {
		var out, errOut bytes.Buffer
		code := service().Run(t.Context(), strings.Fields(tc.args), func(string) string { return "" }, &out, &errOut)
		if code != tc.code || !strings.Contains(out.String(), tc.out) || !strings.Contains(errOut.String(), tc.errOut) {
			t.Errorf("catalog %s: code %d, stdout %q, stderr %q", tc.args, code, out.String(), errOut.String())
		}
		if tc.code == 0 && errOut.Len() > 0 || tc.code != 0 && out.Len() > 0 {
			t.Errorf("catalog %s: output on the wrong stream: stdout %q, stderr %q", tc.args, out.String(), errOut.String())
		}
	}
}

// It sets the variable by which the Pub/Sub client finds the emulator, so it must not
// run in parallel with other tests.
func TestReflectionIsOnLocallyUnlessAFlagSaysOtherwise(t *testing.T) {
	t.Setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
	for name, tc := range map[string]struct {
		args  []string
		cloud string
		want  []string
	}{
		"local":              {nil, "", catalogServices},
		"local, without it":  {[]string{"-reflection=false"}, "", nil},
		"Cloud Run":          {[]string{"serve"}, "catalog", nil},
		"Cloud Run, with it": {[]string{"serve", "-reflection"}, "catalog", catalogServices},
	} {
		t.Run(name, func(t *testing.T) {
			port := strconv.Itoa(porttest.Port(t))
			vars := map[string]string{
				"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "GOOGLE_CLOUD_PROJECT": "p", "VIDEO_SERVICE_ADDR": "127.0.0.1:1",
				"PUBSUB_EMULATOR_HOST": "127.0.0.1:1", "K_SERVICE": tc.cloud, "PORT": port, "EVERYBODY_MAY_WRITE": "true",
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan int, 1)
			go func() {
				done <- service().Run(ctx, tc.args, func(name string) string { return vars[name] }, io.Discard, t.Output())
			}()
			conn, err := connect.Dial("127.0.0.1:" + port)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			got, err := attack.Reflected(t.Context(), conn)
			if !slices.Equal(got, tc.want) || (err == nil) != (tc.want != nil) || err != nil && status.Code(err) != codes.Unimplemented {
				t.Errorf("reflected %q, %v; want %q", got, err, tc.want)
			}
			stop()
			if code := <-done; code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

var catalogServices = []string{"catalog.v1.CatalogService"}
