package process_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/lockstep/internal/local/process"
)

// serviceMode makes the test binary the service.
const serviceMode = "LOCKSTEP_TEST_INSTANCE"

// beService answers its pid until SIGTERM, and dies by a request for /die.
func beService() {
	lis, err := process.Listener()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	fmt.Fprintln(os.Stderr, "serves")
	go func() {
		_ = http.Serve(lis, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/die" {
				fmt.Fprintln(os.Stderr, "a fault")
				os.Exit(1)
			}
			fmt.Fprint(w, os.Getpid())
		}))
	}()
	<-asked
	os.Exit(0)
}

func TestRequestsWaitForTheNextProcess(t *testing.T) {
	t.Parallel()
	i, url, log := newInstance(t)
	begin(t, i)
	if got := get(t, url); got != fmt.Sprint(i.State().PID) {
		t.Errorf("answered by %s, want %d", got, i.State().PID)
	}
	for n, end := range []func() error{i.Stop, i.Kill} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if s := i.State(); s.PID != 0 || s.Starts != n+1 {
			t.Errorf("after the end: %+v", s)
		}
		answer := make(chan string, 1)
		go func() { answer <- get(t, url) }()
		begin(t, i)
		if got := <-answer; got != fmt.Sprint(i.State().PID) {
			t.Errorf("answered by %s, want %d", got, i.State().PID)
		}
	}
	if err := i.Start(); err == nil {
		t.Error("a second process next to the first")
	}
	select {
	case err := <-i.Failed():
		t.Errorf("an end that was asked for is reported: %v", err)
	default:
	}
	if got := <-log; got != "serves\n" {
		t.Errorf("log %q", got)
	}
}

func TestAnUnexpectedEndIsReported(t *testing.T) {
	t.Parallel()
	i, url, _ := newInstance(t)
	begin(t, i)
	_, err := http.Get(url + "/die")
	if err == nil {
		t.Error("the process answered, and should have died")
	}
	select {
	case err := <-i.Failed():
		if !strings.Contains(err.Error(), "a fault") {
			t.Errorf("%v does not show the output", err)
		}
	case <-time.After(patience):
		t.Fatal("no report")
	}
	if pid := i.State().PID; pid != 0 {
		t.Errorf("process %d is shown as running", pid)
	}
}

// TestAServiceEndsWithItsParent has no Start that asks the kernel of Linux to end the service.
func TestAServiceEndsWithItsParent(t *testing.T) {
	t.Parallel()
	lis, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	file, err := lis.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lives, alive, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer lives.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	service := exec.CommandContext(ctx, os.Args[0])
	service.Env, service.ExtraFiles = append(os.Environ(), serviceMode+"=1"), []*os.File{file, lives}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	url := "http://" + lis.Addr().String()
	if got := get(t, url); got != fmt.Sprint(service.Process.Pid) {
		t.Errorf("answered by %s, want %d", got, service.Process.Pid)
	}
	if err := alive.Close(); err != nil { // as at the end of the parent
		t.Fatal(err)
	}
	_ = service.Wait()
	if ctx.Err() != nil {
		t.Errorf("it still ran after %s, and was killed", patience)
	}
}

// lines are the service's writes to its log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default: // the test has seen enough
	}
	return len(b), nil
}

func newInstance(t *testing.T) (i *process.Instance, url string, log lines) {
	t.Helper()
	lis, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	log = make(lines, 10)
	i, err = process.NewInstance(process.Command{Path: os.Args[0], Env: append(os.Environ(), serviceMode+"=1"), Log: log}, lis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
		lis.Close()
	})
	return i, "http://" + lis.Addr().String(), log
}

func begin(t *testing.T, i *process.Instance) {
	t.Helper()
	if err := i.Start(); err != nil {
		t.Fatal(err)
	}
}

// get opens a connection of its own, which may wait for a process.
func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}
