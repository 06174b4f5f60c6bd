package command

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/porttest"
)

// run runs the command line of a service whose Serve is serve.
func run(t *testing.T, serve func(lis, admin net.Listener) error, environment map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	s := Service{
		Name: "video", About: "owns videos.", Environment: "  COLOR                  of the bicycle shed",
		Configure: func(r *Environment) Process {
			return Process{Project: r.Required("COLOR"), Serve: func(_ context.Context, lis, admin net.Listener, _ *slog.Logger) error {
				defer lis.Close()
				return serve(lis, admin)
			}}
		},
	}
	var out, errOut bytes.Buffer
	code = s.Run(t.Context(), args, func(name string) string { return environment[name] }, &out, &errOut)
	return code, out.String(), errOut.String()
}

const help = `video owns videos.

usage: video [command]

commands:
  serve     serve until SIGTERM or SIGINT (the default)
  migrate   bring the schema "video" up to date and exit
  health    ask the server on this machine whether it is ready; exit 1 if it is not
  version   print the release and the commit
  help      print this

environment of serve:
  DATABASE_URL           Postgres, as the role video_service; behind a
                         transaction pooler add ?default_query_exec_mode=exec
  COLOR                  of the bicycle shed
  PORT                   REST and gRPC without TLS (8080)
  ADMIN_PORT             /healthz, /readyz and /metrics (those of PORT)
  LOG_LEVEL              debug, info, warn or error (info)
  OTEL_*                 the standard variables of OpenTelemetry; OTLP goes over gRPC
  GOMEMLIMIT             of Go's collector (90 % of the container's memory)

environment of migrate:
  DATABASE_URL           Postgres, as an administrator

environment of health:
  PORT, ADMIN_PORT       where the server listens, as above

exit codes: 0 done, 1 failed, 2 wrong usage
`

func TestHelpNeedsNoEnvironment(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}, {"serve", "--help"}, {"migrate", "-h"}, {"health", "-h"}} {
		code, stdout, stderr := run(t, nil, nil, args...)
		if diff := cmp.Diff(help, stdout); diff != "" || code != 0 || stderr != "" {
			t.Errorf("%q: code %d, stderr %q, stdout (-want +got):\n%s", args, code, stderr, diff)
		}
	}
}

func TestServeNamesAllThatIsWrongWithItsEnvironment(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"http", "0", "70000"} {
		code, stdout, stderr := run(t, nil, map[string]string{"PORT": port, "LOG_LEVEL": "loud"})
		for _, name := range []string{"COLOR", "PORT", "LOG_LEVEL"} {
			if code != 1 || stdout != "" || !strings.Contains(stderr, name) {
				t.Errorf("port %s: code %d, stdout %q, stderr %q; want %s named", port, code, stdout, stderr, name)
			}
		}
	}
}

func TestServeListensAndReportsItsError(t *testing.T) {
	t.Parallel()
	port := strconv.Itoa(porttest.Port(t))
	lis, err := net.Listen("tcp", ":"+port)
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"COLOR": "red", "PORT": port}
	code, _, stderr := run(t, nil, environment)
	if code != 1 || !strings.Contains(stderr, port) {
		t.Errorf("on a taken port: code %d, stderr %q", code, stderr)
	}
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	var served string
	code, _, stderr = run(t, func(lis, admin net.Listener) error {
		_, served, _ = net.SplitHostPort(lis.Addr().String())
		if admin != nil {
			t.Errorf("without ADMIN_PORT it listens on %s", admin.Addr())
		}
		return errors.New("the relay broke")
	}, environment, "serve")
	if code != 1 || !strings.Contains(stderr, "video: the relay broke") || served != port {
		t.Errorf("code %d, stderr %q, served on port %q, want %s", code, stderr, served, port)
	}
}

func TestServeNamesServersThatNeedNotProveTheirIdentity(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]int{
		"postgres://u:s3cret@db.example.com/x?sslmode=require": 1, "postgres://u:s3cret@db.example.com/x?sslmode=verify-full": 0,
	} {
		environment := map[string]string{"COLOR": "red", "PORT": strconv.Itoa(porttest.Port(t)), "LISTEN_DATABASE_URL": url}
		_, stdout, _ := run(t, func(_, _ net.Listener) error { return errors.New("the relay broke") }, environment, "serve")
		if got := strings.Count(stdout, "sslmode=verify-full"); got != want || strings.Contains(stdout, "s3cret") {
			t.Errorf("%s: %d lines, want %d:\n%s", url, got, want, stdout)
		}
		if want == 1 && (!strings.Contains(stdout, `"LISTEN_DATABASE_URL"`) || !strings.Contains(stdout, `"db.example.com"`)) {
			t.Errorf("%s: the line does not name variable and host:\n%s", url, stdout)
		}
	}
}

func TestServeListensOnTheAdminPortOnAllInterfaces(t *testing.T) {
	t.Parallel()
	port, adminPort := strconv.Itoa(porttest.Port(t)), strconv.Itoa(porttest.Port(t))
	environment := map[string]string{"COLOR": "red", "PORT": port, "ADMIN_PORT": adminPort}
	var listened []string
	code, _, stderr := run(t, func(lis, admin net.Listener) error {
		for _, l := range []net.Listener{lis, admin} {
			if at := l.Addr().(*net.TCPAddr); at.IP.IsUnspecified() {
				listened = append(listened, strconv.Itoa(at.Port))
			}
		}
		return nil
	}, environment)
	if diff := cmp.Diff([]string{port, adminPort}, listened); diff != "" || code != 0 {
		t.Errorf("code %d, stderr %q, ports on all interfaces (-want +got):\n%s", code, stderr, diff)
	}
	lis, err := net.Listen("tcp", ":"+adminPort)
	if err != nil {
		t.Fatalf("the admin port was left open: %v", err)
	}
	defer lis.Close()
	if code, _, stderr = run(t, nil, environment); code != 1 || !strings.Contains(stderr, adminPort) {
		t.Errorf("on a taken admin port: code %d, stderr %q", code, stderr)
	}
	free, err := net.Listen("tcp", ":"+port)
	if err != nil {
		t.Fatalf("the port was left open: %v", err)
	}
	_ = free.Close()
}

func TestTheAdminPortIsAnotherThanThePort(t *testing.T) {
	t.Parallel()
	for name, environment := range map[string]map[string]string{
		"the same":             {"PORT": "9000", "ADMIN_PORT": "9000"},
		"the same by default":  {"ADMIN_PORT": "8080"},
		"not a port":           {"ADMIN_PORT": "0"},
		"not a number":         {"ADMIN_PORT": "metrics"},
		"beyond what there is": {"ADMIN_PORT": "65536"},
	} {
		for _, command := range []string{"serve", "health"} {
			environment["COLOR"] = "red"
			code, _, stderr := run(t, nil, environment, command)
			if code != 1 || !strings.HasPrefix(stderr, "video: ADMIN_PORT must ") {
				t.Errorf("%s, %s: code %d, stderr %q", name, command, code, stderr)
			}
		}
	}
	if code, _, stderr := run(t, nil, map[string]string{"COLOR": "red", "PORT": "x"}); code != 1 || strings.Contains(stderr, "ADMIN_PORT") {
		t.Errorf("a bad PORT alone: code %d, stderr %q", code, stderr)
	}
}

// A default that depends on the environment is one that a flag replaces.
func TestFlagsKnowWhetherTheProcessIsLocal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		environment map[string]string
		args        []string
		want        bool
	}{
		"local":             {map[string]string{"PUBSUB_EMULATOR_HOST": "localhost:8085"}, nil, true},
		"local, without":    {map[string]string{"PUBSUB_EMULATOR_HOST": "localhost:8085"}, []string{"-chatty=false"}, false},
		"elsewhere":         {nil, nil, false},
		"elsewhere, with":   {nil, []string{"-chatty"}, true},
		"on Cloud Run":      {map[string]string{"PUBSUB_EMULATOR_HOST": "localhost:8085", "K_SERVICE": "video"}, nil, false},
		"help, on a laptop": {map[string]string{"PUBSUB_EMULATOR_HOST": "localhost:8085"}, []string{"help"}, true},
	} {
		var chatty bool
		s := Service{
			Name: "video", Flags: func(f *flag.FlagSet, local bool) { f.BoolVar(&chatty, "chatty", local, "say more") },
			Configure: func(r *Environment) Process { r.Required("COLOR"); return Process{} },
		}
		var out bytes.Buffer
		s.Run(t.Context(), tc.args, func(name string) string { return tc.environment[name] }, &out, io.Discard)
		if chatty != tc.want || out.Len() > 0 && !strings.Contains(out.String(), "say more (true)") {
			t.Errorf("%s: %t, help %q", name, chatty, out.String())
		}
	}
}
