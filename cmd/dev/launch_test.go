package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest/pairtest"
)

// patience bounds every wait here, far above the needs of a loaded machine.
const patience = 5 * time.Minute

// binary is the launcher itself. TestMain builds it before the first test runs.
var binary string

func TestMain(m *testing.M) {
	// Under nohup this process ignores SIGHUP, and so would its children. The children of a process that
	// handles the signal do not.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	dir, err := os.MkdirTemp("", "lockstep-dev-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "dev")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build: %v: %s", err, out))
	}
	pairtest.Main(m)
}

// launch is one run of the launcher.
type launch struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	out            io.Closer     // of stdout, when started by serving
	lines          *bufio.Reader // likewise
}

// command prepares a launch with no database or broker except those in vars. It
// leads a session, so that left-over processes can be found.
func command(t testing.TB, vars []string, args ...string) *launch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	l := &launch{cmd: exec.CommandContext(ctx, binary, args...)}
	l.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR")}, vars...)
	l.cmd.Stdout, l.cmd.Stderr = &l.stdout, &l.stderr
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return l
}

// run waits for the end of the launch and returns its exit code.
func (l *launch) run(t testing.TB) int {
	t.Helper()
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return l.wait(t)
}

// wait also checks that no process is left behind.
func (l *launch) wait(t testing.TB) int {
	t.Helper()
	var exit *exec.ExitError
	if err := l.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	// An interrupted initdb leaves a shell that ends when its input is closed.
	eventually(t, "end of all processes", func() bool { return len(l.session(t)) == 0 })
	return l.cmd.ProcessState.ExitCode()
}

// serving starts the launch, so that its stdout can be read line by line.
func (l *launch) serving(t testing.TB) {
	t.Helper()
	l.cmd.Stdout = nil
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.out, l.lines = out, bufio.NewReader(out)
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.cmd.Process.Kill() }) // ended already unless the test failed
}

// complaints reads the launch's stderr line by line. The returned function
// waits for a line that is written after its call. Call complaints before
// serving.
func (l *launch) complaints(t testing.TB) (next func()) {
	t.Helper()
	from, to := io.Pipe()
	l.cmd.Stderr = to
	t.Cleanup(func() { from.Close() })
	lines, asked := make(chan struct{}), make(chan struct{})
	go func() {
		wanted := asked
		for reader := bufio.NewReader(from); ; {
			if _, err := reader.ReadString('\n'); err != nil {
				return
			}
			select {
			case <-wanted:
				close(lines)
				wanted = nil
			default:
			}
		}
	}()
	return func() {
		t.Helper()
		close(asked)
		select {
		case <-lines:
		case <-t.Context().Done():
		case <-time.After(patience):
			t.Error("nothing on stderr")
		}
	}
}

func (l *launch) line(t testing.TB) string {
	t.Helper()
	line, err := l.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("read stdout: %v; stderr:\n%s", err, l.stderr.String())
	}
	return strings.TrimSpace(line)
}

func (l *launch) signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := l.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// session returns the launcher's living descendants by pid: children may leave
// its process group, but not its session.
func (l *launch) session(t testing.TB) map[int]string {
	t.Helper()
	found := map[int]string{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat") // none where there is no /proc
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid pgrp session …
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		session, err := strconv.Atoi(fields[3])
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		pid, _ := strconv.Atoi(strings.Fields(name)[0])
		zombie := fields[0] == "Z" // ended, but not yet reaped by its parent
		if session == l.cmd.Process.Pid && pid != session && !zombie {
			found[pid] = name[strings.IndexByte(name, '(')+1:]
		}
	}
	return found
}

// children skips a test that needs them where the system does not show them. Call it before the start.
func (*launch) children(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux shows the processes of a session: ", err)
	}
}

// awaitChild returns the pid of the child with that name, after children.
func (l *launch) awaitChild(t testing.TB, name string) (pid int) {
	t.Helper()
	eventually(t, "child "+name, func() bool {
		for id, n := range l.session(t) {
			if n == name {
				pid = id
			}
		}
		return pid != 0
	})
	return pid
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
