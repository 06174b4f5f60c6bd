package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/internal/walk"
)

func TestHelpGoesToStdoutWithoutAnEnvironment(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}, {"token", "--help"}, {"provision", "--help"}, {"pubsub", "--help"}} {
		l := command(t, nil, args...)
		l.cmd.Env = []string{}
		if code := l.run(t); code != 0 || !strings.Contains(l.stdout.String(), "--no-auth") || l.stderr.Len() > 0 {
			t.Errorf("dev %q: exit code %d, stdout %q, stderr %q", args, code, l.stdout.String(), l.stderr.String())
		}
	}
}

func TestWrongUsageIsOneLine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args  []string
		names string
	}{
		{[]string{"--twice"}, "twice"},
		{[]string{"--once", "now"}, "now"},
		{[]string{"--pubsub", "kafka"}, "kafka"},
		{[]string{"--cors-origin", "*"}, "cors-origin"},
		{[]string{"serve"}, "serve"},
		{[]string{"token"}, "--user"},
		{[]string{"token", "--user", "root"}, "UUID"},
		{[]string{"provision", "all"}, "all"},
		{[]string{"provision", "--watch", "--check"}, "--check"},
		{[]string{"provision", "--ready", "x"}, "--ready"},
		{[]string{"pubsub"}, "--addr"},
		{[]string{"pubsub", "--addr", "8085"}, "--addr"},
	} {
		l := command(t, nil, test.args...)
		code, errors := l.run(t), l.stderr.String()
		if code != 2 || !strings.Contains(errors, test.names) || strings.Count(errors, "\n") != 1 || l.stdout.Len() > 0 {
			t.Errorf("dev %q: exit code %d, stdout %q, stderr %q", test.args, code, l.stdout.String(), errors)
		}
	}
}

func TestBadVariableIsNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"DATABASE_URL", "PUBSUB_EMULATOR_HOST", "LOG_LEVEL"} {
		l := command(t, []string{name + "=s3cret"}, "--once")
		if code := l.run(t); code != 1 || !strings.Contains(l.stderr.String(), name) || strings.Contains(l.stderr.String(), "s3cret") {
			t.Errorf("%s: exit code %d, stderr %q", name, code, l.stderr.String())
		}
	}
}

// servePubSub runs `dev pubsub` until the test ends or signals it.
func servePubSub(t testing.TB) (addr string, l *launch) {
	t.Helper()
	l = command(t, nil, "pubsub", "--addr", "127.0.0.1:0")
	l.serving(t)
	if first := l.line(t); !strings.Contains(first, "own Pub/Sub") {
		t.Errorf("first line %q does not say what serves", first)
	}
	addr, ok := strings.CutPrefix(l.line(t), "export PUBSUB_EMULATOR_HOST=")
	if !ok {
		t.Fatalf("second line is not the line to export: %q", addr)
	}
	return addr, l
}

func TestProvision(t *testing.T) {
	t.Parallel()
	l := command(t, nil, "provision")
	if code := l.run(t); code != 1 || !strings.Contains(l.stderr.String(), "PUBSUB_EMULATOR_HOST is required") {
		t.Errorf("without an emulator: exit code %d, stderr %q", code, l.stderr.String())
	}

	addr, server := servePubSub(t)
	things := 4 * len(topics.All) // of each kind of aggregate a topic, a subscription, and both again for dead letters
	check := command(t, []string{"PUBSUB_EMULATOR_HOST=" + addr, "GOOGLE_CLOUD_PROJECT=mine"}, "provision", "--check")
	if code := check.run(t); code != 1 || strings.Count(check.stderr.String(), "projects/mine/") != things {
		t.Errorf("check of an empty broker: exit code %d, stderr %q", code, check.stderr.String())
	}
	for _, state := range []string{"created", "existing"} {
		l := command(t, []string{"PUBSUB_EMULATOR_HOST=" + addr, "GOOGLE_CLOUD_PROJECT=mine"}, "provision")
		if code := l.run(t); code != 0 {
			t.Fatalf("exit code %d, stderr %q", code, l.stderr.String())
		}
		lines := strings.Split(strings.TrimSpace(l.stdout.String()), "\n")
		schemas := 0
		for _, line := range lines {
			if !strings.HasPrefix(line, state) || !strings.Contains(line, "projects/mine/") {
				t.Errorf("%q, want %s", line, state)
			}
			if strings.Contains(line, "/schemas/") {
				schemas++
			}
		}
		if len(lines)-schemas != things || schemas == 0 {
			t.Errorf("%d lines, want %d and the schemas: %q", len(lines), things, lines)
		}
	}

	check = command(t, []string{"PUBSUB_EMULATOR_HOST=" + addr, "GOOGLE_CLOUD_PROJECT=mine"}, "provision", "--check")
	if code := check.run(t); code != 0 {
		t.Errorf("check: exit code %d, stderr %q", code, check.stderr.String())
	}

	watching := command(t, []string{"PUBSUB_EMULATOR_HOST=" + addr, "GOOGLE_CLOUD_PROJECT=yours"}, "provision", "--watch")
	watching.serving(t)
	if first, second := watching.line(t), watching.line(t); first != "watching "+addr || !strings.HasPrefix(second, "created  projects/yours/") {
		t.Errorf("--watch prints %q, %q", first, second)
	}
	for _, l := range []*launch{watching, server} {
		l.signal(t, syscall.SIGTERM)
		if code := l.wait(t); code != 0 {
			t.Errorf("SIGTERM: exit code %d, stderr %q", code, l.stderr.String())
		}
	}
}

// TestProvisionStaysReady shows that a service that waits for the topics may
// start once they have existed. After that the emulator may go away for any
// time.
func TestProvisionStaysReady(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ready")
	if err := os.WriteFile(file, nil, 0o600); err != nil { // of a run that was killed
		t.Fatal(err)
	}
	addr, server := servePubSub(t)
	server.signal(t, syscall.SIGTERM)
	if code := server.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	environment := []string{"PUBSUB_EMULATOR_HOST=" + addr}
	watching := command(t, environment, "provision", "--watch", "--ready", file)
	missed := watching.complaints(t)
	watching.serving(t)
	ready := func() bool { return command(t, environment, "provision", "--check", "--ready", file).run(t) == 0 }
	if first := watching.line(t); first != "watching "+addr || ready() {
		t.Errorf("before there is an emulator: %q, ready: %v", first, ready())
	}
	again := command(t, nil, "pubsub", "--addr", addr)
	again.serving(t)
	if line := watching.line(t); !strings.HasPrefix(line, "created ") {
		t.Fatalf("--watch prints %q", line)
	}
	eventually(t, "ready", ready)
	again.signal(t, syscall.SIGKILL)
	again.wait(t)
	missed()
	if !ready() {
		t.Error("not ready any more without the emulator")
	}
	watching.signal(t, syscall.SIGTERM)
	if code := watching.wait(t); code != 0 || ready() {
		t.Errorf("SIGTERM: exit code %d; ready: %v, want its file gone", code, ready())
	}
}

func TestTokenNeedsARunningPair(t *testing.T) {
	t.Parallel()
	at := "http://" + porttest.Addr(t)
	l := command(t, nil, "token", "--user", walk.User.String(), "--issuer", at)
	if code := l.run(t); code != 1 || !strings.Contains(l.stderr.String(), "make run") || l.stdout.Len() > 0 {
		t.Errorf("exit code %d, stderr %q", code, l.stderr.String())
	}
}

func TestPubSubNamesATakenPort(t *testing.T) {
	t.Parallel()
	addr, _ := servePubSub(t)
	l := command(t, nil, "pubsub", "--addr", addr)
	if code := l.run(t); code != 1 || !strings.Contains(l.stderr.String(), addr) {
		t.Errorf("exit code %d, stderr %q", code, l.stderr.String())
	}
}
