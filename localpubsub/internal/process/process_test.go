package process_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/lockstep/localpubsub/internal/process"
)

// parentMode makes the test binary act as the parent that gets killed.
const parentMode = "LOCALPUBSUB_TEST_PROCESS_PARENT"

// patience ends a test that would otherwise hang.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(parentMode) != "" {
		beParent()
	}
	m.Run()
}

// beParent starts a child that sleeps, prints its pid and waits to be killed.
func beParent() {
	p, err := process.Start(exec.Command("sh", "-c", "echo $$; exec sleep 60"), syscall.SIGKILL)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for p.Output() == "" {
		<-time.After(time.Millisecond)
	}
	fmt.Fprintln(os.Stdout, p.Output())
	<-p.Done()
}

func TestStopAndOutput(t *testing.T) {
	t.Parallel()
	p := start(t, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	await(t, "the first line", func() bool { return p.Output() == "ready" })
	if err := p.Stop(syscall.SIGTERM, patience); err != nil {
		t.Fatal(err)
	}
	if got := p.Output(); got != "ready\nbye" {
		t.Errorf("output = %q, want both lines", got)
	}
	if err := p.Stop(syscall.SIGTERM, 0); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestStopKillsAfterGrace(t *testing.T) {
	t.Parallel()
	p := start(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	await(t, "the trap", func() bool { return p.Output() == "ready" })
	if err := p.Stop(syscall.SIGTERM, time.Millisecond); err == nil {
		t.Error("Stop hid that it had to kill")
	}
	select {
	case <-p.Done():
	default:
		t.Error("Stop returned before the child ended")
	}
}

func TestOutputKeepsTheEnd(t *testing.T) {
	t.Parallel()
	p := start(t, "yes | head -c 100000; echo last")
	<-p.Done()
	if got := p.Output(); len(got) > 4096 || !strings.HasSuffix(got, "last") {
		t.Errorf("kept %d bytes ending in %q, want at most 4096 ending in last", len(got), got[max(0, len(got)-10):])
	}
}

func TestStartReportsMissingProgram(t *testing.T) {
	t.Parallel()
	if _, err := process.Start(exec.Command("/nonexistent/program"), syscall.SIGKILL); err == nil {
		t.Error("no error for a missing program")
	}
}

func TestProcessEndsWithItsKilledParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its killed parent")
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentMode+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	await(t, "the child's end", func() bool { return gone(pid) })
}

// gone counts a zombie as gone: the process that inherits it may be slow to reap it.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func start(tb testing.TB, script string) *process.Process {
	tb.Helper()
	p, err := process.Start(exec.Command("sh", "-c", script), syscall.SIGKILL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.Stop(syscall.SIGKILL, patience) })
	return p
}

func await(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("still waiting for %s", what)
		}
	}
}
