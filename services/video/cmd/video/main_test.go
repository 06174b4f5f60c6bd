package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/attack"
	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/porttest"
)

func TestMain(m *testing.M) { pairtest.Main(m) }

func TestCommandLine(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	service().Run(t.Context(), []string{"help"}, func(string) string { return "" }, &help, io.Discard)
	usage := help.String()
	for _, want := range []string{"usage: video", "as the role video_service;", "GOOGLE_CLOUD_PROJECT ", "PUBSUB_ENDPOINT ", "PORT ", "migrate ",
		"LISTEN_DATABASE_URL ", "-outbox-retention duration", "(168h0m0s)", "-canary-interval value", "-user-rate uint", "(100)", "-cors-origin value"} {
		if !strings.Contains(usage, want) {
			t.Errorf("help does not say %q:\n%s", want, usage)
		}
	}
	var printed bytes.Buffer
	service().Run(t.Context(), []string{"version"}, func(string) string { return "" }, &printed, io.Discard)
	version := printed.String()
	if !strings.HasPrefix(version, "video "+command.Version+" (commit ") {
		t.Errorf("video version says %q", version)
	}
	tests := []struct {
		args   []string
		code   int
		stdout string // all of it
		stderr string // a part of it
	}{
		{[]string{"help"}, 0, usage, ""},
		{[]string{"--help"}, 0, usage, ""},
		{[]string{"-h"}, 0, usage, ""},
		{[]string{"serve", "--help"}, 0, usage, ""},
		{[]string{"migrate", "--help"}, 0, usage, ""},
		{[]string{"version"}, 0, version, ""},
		{[]string{"--version"}, 0, version, ""},
		{[]string{"dance"}, 2, "", `unknown command "dance"`},
		{[]string{"--dance"}, 2, "", "-dance"},
		{[]string{"serve", "--dance"}, 2, "", "-dance"},
		{[]string{"serve", "-outbox-retention", "long"}, 2, "", "outbox-retention"},
		{[]string{"serve", "-outbox-retention", "-24h"}, 2, "", "outbox-retention: must not be negative"},
		{[]string{"serve", "-outbox-retention", "24h"}, 1, "", "DATABASE_URL is required"},
		{[]string{"migrate", "-outbox-retention", "24h"}, 2, "", "outbox-retention"},
		{[]string{"serve", "-canary-interval=100ms"}, 2, "", "0, or 1s to 60s"},
		{[]string{"serve", "-canary-interval=61s"}, 2, "", "0, or 1s to 60s"},
		{[]string{"serve", "-canary-interval=0"}, 1, "", "DATABASE_URL is required"},
		{[]string{"serve", "-user-rate=-1"}, 2, "", "-user-rate"},
		{[]string{"serve", "-cors-origin", "*"}, 2, "", "-cors-origin"},
		{[]string{"serve", "-user-rate=0", "-cors-origin", "https://app.example"}, 1, "", "GOOGLE_CLOUD_PROJECT is required"},
		{[]string{"serve", "now"}, 2, "", `unexpected argument "now"`},
		{[]string{""}, 2, "", "unknown command"},
		{nil, 1, "", "DATABASE_URL is required"},
		{[]string{"serve"}, 1, "", "GOOGLE_CLOUD_PROJECT is required"},
		{[]string{"migrate"}, 1, "", "DATABASE_URL is required"},
	}
	for _, test := range tests {
		var stdout, stderr bytes.Buffer
		code := service().Run(t.Context(), test.args, func(string) string { return "" }, &stdout, &stderr)
		if code != test.code || stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) ||
			(code == 0) != (stderr.Len() == 0) {
			t.Errorf("video %q: code %d, stdout %.40q, stderr %q", test.args, code, stdout.String(), stderr.String())
		}
	}
}

func TestMigrateNeedsOnlyItsDatabase(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	pool := db.Pool(t, db.Admin)
	pgtest.Exec(t, pool, `DROP SCHEMA video CASCADE`)
	getenv := func(name string) string { return map[string]string{"DATABASE_URL": db.Admin}[name] }
	for range 2 { // the second finds nothing to do
		var stdout, stderr bytes.Buffer
		if code := service().Run(t.Context(), []string{"migrate"}, getenv, &stdout, &stderr); code != 0 {
			t.Fatalf("migrate: %d %s", code, stderr.String())
		}
	}
	var n int
	if err := db.Pool(t, db.VideoURL).QueryRow(t.Context(), `SELECT count(*) FROM videos`).Scan(&n); err != nil {
		t.Errorf("the service cannot use what was migrated: %v", err)
	}
}

func TestServeNamesATakenPort(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	port := strconv.Itoa(lis.Addr().(*net.TCPAddr).Port)
	env := map[string]string{"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "GOOGLE_CLOUD_PROJECT": "p", "PORT": port, "EVERYBODY_MAY_WRITE": "true"}
	var stdout, stderr bytes.Buffer
	code := service().Run(context.Background(), nil, func(name string) string { return env[name] }, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), port) {
		t.Errorf("code %d, stderr %q", code, stderr.String())
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
		"local":              {nil, "", videoServices},
		"local, without it":  {[]string{"-reflection=false"}, "", nil},
		"Cloud Run":          {[]string{"serve"}, "video", nil},
		"Cloud Run, with it": {[]string{"serve", "-reflection"}, "video", videoServices},
	} {
		t.Run(name, func(t *testing.T) {
			port := strconv.Itoa(porttest.Port(t))
			vars := map[string]string{
				"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "GOOGLE_CLOUD_PROJECT": "p",
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

var videoServices = slices.Sorted(slices.Values([]string{
	"video.replication.v1.ReplicationService",
	"video.v1.EngagementService",
	"video.v1.VideoService",
}))
