package command

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/porttest"
)

// run runs the command line of a service whose Serve is serve.
func run(t *testing.T, serve func(net.Listener) error, environment map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	s := Service{
		Name: "video", About: "owns videos.", Environment: "  COLOR                  of the bicycle shed",
		Configure: func(r *Environment) Process {
			return Process{Project: r.Required("COLOR"), Serve: func(_ context.Context, lis net.Listener, _ *slog.Logger) error {
				defer lis.Close()
				return serve(lis)
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
  LOG_LEVEL              debug, info, warn or error (info)
  OTEL_*                 the standard variables of OpenTelemetry
  GOMEMLIMIT             of Go's collector (90 % of the container's memory)

environment of migrate:
  DATABASE_URL           Postgres, as an administrator

environment of health:
  PORT                   where the server listens (8080)

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
	code, _, stderr = run(t, func(lis net.Listener) error {
		_, served, _ = net.SplitHostPort(lis.Addr().String())
		return errors.New("the relay broke")
	}, environment, "serve")
	if code != 1 || !strings.Contains(stderr, "video: the relay broke") || served != port {
		t.Errorf("code %d, stderr %q, served on port %q, want %s", code, stderr, served, port)
	}
}
