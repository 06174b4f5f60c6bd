package main_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/walk"
)

// TestInterruptedWalkThroughIsAFailure interrupts with Ctrl-C, and with the end of the terminal, for
// which the system and the shell send a signal each.
func TestInterruptedWalkThroughIsAFailure(t *testing.T) {
	t.Parallel()
	for _, signals := range [][]os.Signal{{os.Interrupt}, {syscall.SIGHUP, syscall.SIGHUP}} {
		l := command(t, nil, "--once", "--json", "--pubsub", "local")
		l.children(t)
		if err := l.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		l.awaitChild(t, "postgres")
		for _, sig := range signals {
			l.signal(t, sig)
		}
		if code := l.wait(t); code != 1 || !strings.Contains(l.stderr.String(), "interrupted") || l.stdout.Len() > 0 {
			t.Errorf("%v: exit code %d, stdout %q, stderr:\n%s", signals, code, l.stdout.String(), l.stderr.String())
		}
	}
}

// TestNohupKeepsServing: a run that was started with nohup outlives its terminal.
func TestNohupKeepsServing(t *testing.T) {
	t.Parallel()
	l := command(t, nil, "pubsub", "--addr", "127.0.0.1:0")
	l.cmd.Args = append([]string{"nohup"}, l.cmd.Args...)
	var err error
	if l.cmd.Path, err = exec.LookPath("nohup"); err != nil {
		t.Skip(err)
	}
	l.serving(t)
	l.line(t)
	addr := strings.TrimPrefix(l.line(t), "export ")
	l.signal(t, syscall.SIGHUP)
	if still := command(t, []string{addr}, "provision"); still.run(t) != 0 {
		t.Errorf("it serves no longer: %s", still.stderr.String())
	}
	l.signal(t, os.Interrupt)
	if code := l.wait(t); code != 0 {
		t.Errorf("exit code %d, stderr:\n%s", code, l.stderr.String())
	}
}

func TestKilledLauncherLeavesNoProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a killed process")
	}
	l := command(t, nil, "--once", "--pubsub", "local")
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.awaitChild(t, "postgres")
	l.signal(t, os.Kill)
	_ = l.cmd.Wait() // "killed"
	eventually(t, "end of the children", func() bool { return len(l.session(t)) == 0 })
}

// TestServing contains the tests that need the ports of a run without --once,
// and so runs them one after the other.
func TestServing(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"8080", "8081", "8082"} {
		takenPort(t, "127.0.0.1", port)
	}
	takenPort(t, "::1", "8080") // a client of localhost may come here
	t.Run("until Ctrl-C", servesUntilInterrupted)
	t.Run("until Postgres ends", servesUntilPostgresEnds)
	t.Run("with an operator's commands", showsAnOperatorsCommands)
	// fork: leave out
	takenPort(t, "127.0.0.1", "8083")
	t.Run("with the live page", showsTheLivePage)
	t.Run("with the live page and another program's broker", leavesNoFaultInABroker)
	// fork: go on
}

func takenPort(t *testing.T, host, port string) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if host == "::1" && errors.Is(err, syscall.EADDRNOTAVAIL) {
		return // a machine without IPv6
	}
	if err != nil {
		t.Skipf("this machine uses the port itself: %v", err)
	}
	defer listener.Close()
	l := command(t, nil)
	if code := l.run(t); code != 1 || !strings.Contains(l.stderr.String(), "port "+port) {
		t.Errorf("port %s of %s taken: exit code %d, stderr %q", port, host, code, l.stderr.String())
	}
}

func servesUntilInterrupted(t *testing.T) {
	const page = "http://localhost:3000"
	l := command(t, []string{"DATABASE_URL=" + pairtest.New(t).Admin + "&pool_max_conns=5&search_path=mine"}, "--json", "--pubsub", "local",
		"--cors-origin", page)
	l.serving(t)
	checkWalk(t, l.line(t))
	for origin, want := range map[string]string{page: page, "http://localhost:3001": ""} {
		for _, url := range []string{"http://localhost:8080/v1/videos", "http://localhost:8081/v1/videos"} {
			if got := allowedOrigin(t, url, origin); got != want {
				t.Errorf("%s for a page of %s: allowed is %q, want %q", url, origin, got, want)
			}
		}
	}
	asking := command(t, nil, "token", "--user", walk.User.String())
	if code := asking.run(t); code != 0 {
		t.Fatalf("no token: %s", asking.stderr.String())
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, asking.stdout.String(): http.StatusOK} {
		for _, url := range []string{"http://localhost:8080/v1/videos", "http://localhost:8081/v1/videos"} {
			if got := get(t, url, strings.TrimSpace(token)); got != want {
				t.Errorf("%s with the token %.5q: %d, want %d", url, token, got, want)
			}
		}
	}
	l.signal(t, os.Interrupt)
	if code := l.wait(t); code != 0 {
		t.Errorf("exit code %d, stderr:\n%s", code, l.stderr.String())
	}
}

// allowedOrigin asks like a browser with a page of origin, and returns the origin that may call.
func allowedOrigin(t *testing.T, url, origin string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", origin)
	r.Header.Set("Access-Control-Request-Method", http.MethodPost)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.Header.Get("Access-Control-Allow-Origin")
}

func get(t *testing.T, url, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func servesUntilPostgresEnds(t *testing.T) {
	l := command(t, nil, "--json", "--pubsub", "local")
	l.children(t)
	l.serving(t)
	checkWalk(t, l.line(t))
	if err := syscall.Kill(l.awaitChild(t, "postgres"), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if code := l.wait(t); code != 1 || !strings.Contains(l.stderr.String(), "Postgres has ended") {
		t.Errorf("exit code %d, stderr:\n%s", code, l.stderr.String())
	}
}

// showsAnOperatorsCommands runs the printed commands in another shell. At the end there is no reader of the
// output any more, as in `make run | tee log`, where Ctrl-C ends tee first.
func showsAnOperatorsCommands(t *testing.T) {
	l := command(t, nil, "--pubsub", "local")
	l.serving(t)
	answers := map[string]string{"video outbox status": "oldest to send", "catalog dlq list": "SUBSCRIPTION"}
	for line := ""; line != "Serving until Ctrl-C."; line = l.line(t) {
		for typed, want := range answers {
			if !strings.HasSuffix(line, typed) {
				continue
			}
			delete(answers, typed)
			shell := exec.CommandContext(t.Context(), "sh", "-c", line)
			shell.Dir = "../.."
			if out, err := shell.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		}
	}
	if len(answers) > 0 {
		t.Errorf("not shown: %v", answers)
	}
	l.out.Close()
	l.signal(t, os.Interrupt)
	if code := l.wait(t); code != 0 {
		t.Errorf("exit code %d, stderr:\n%s", code, l.stderr.String())
	}
}
