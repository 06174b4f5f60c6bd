package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// parentMode makes the test binary the process that is killed.
const parentMode = "LOCALPUBSUB_TEST_PEER_PARENT"

const anyPort = "127.0.0.1:0"

var starts = map[string]func(context.Context, string) (*Server, error){"emulator": StartEmulator, "pstest": StartPstest}

func TestMain(m *testing.M) {
	if os.Getenv(parentMode) != "" {
		beParent()
	}
	m.Run()
}

// beParent starts an emulator, prints its address and waits to be killed.
func beParent() {
	s, err := StartEmulator(context.Background(), anyPort)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, s.Addr())
	<-s.Done()
}

func TestTakenPortIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, start := range starts {
		_, err := start(t.Context(), l.Addr().String())
		if errors.Is(err, ErrNotInstalled) {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("%s on a taken port = %v, want an error that names it", name, err)
		}
	}
}

// The emulator is given a port that another process took just before.
func TestEmulatorThatLostItsPort(t *testing.T) {
	t.Parallel()
	first := start(t, StartEmulator)
	java, jar, err := findEmulator()
	if err != nil {
		t.Fatal(err)
	}
	addr, err := net.ResolveTCPAddr("tcp", first.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_, err = runEmulator(t.Context(), addr, java, jar)
	if err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("start = %v, want it to say that the port was taken", err)
	}
}

func TestCloseEndsTheServer(t *testing.T) {
	t.Parallel()
	for name, one := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, one)
			select {
			case <-s.Done():
				t.Error("done before Close")
			default:
			}
			for range 2 {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			<-s.Done()
			mustBeGone(t, s.Addr())
		})
	}
}

func TestKilledParentLeavesNoEmulator(t *testing.T) {
	t.Parallel()
	skipWithoutEmulator(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a server with its killed parent")
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentMode+"=1")
	parent.Stderr = t.Output()
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	_, err = fmt.Fscan(out, &addr)
	if kill := parent.Process.Kill(); err != nil || kill != nil {
		t.Fatal(err, kill)
	}
	_ = parent.Wait() // it was killed
	mustBeGone(t, addr)
}

func TestFindEmulator(t *testing.T) {
	root := t.TempDir()
	lib := filepath.Join(root, "sdk", filepath.Dir(jarPattern))
	for _, dir := range []string{lib, filepath.Join(root, "sdk/bin"), filepath.Join(root, "path")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	jar := filepath.Join(lib, "cloud-pubsub-emulator-9.9.9-all.jar")
	for _, file := range []string{jar, filepath.Join(root, "sdk/bin/gcloud"), filepath.Join(root, "path/java")} {
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(root, "sdk/bin/gcloud"), filepath.Join(root, "path/gcloud")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(root, "path"))
	if _, got, err := findEmulator(); err != nil || got != jar {
		t.Errorf("findEmulator = %q, %v, want %q", got, err, jar)
	}
	t.Setenv("PATH", "")
	if _, _, err := findEmulator(); err == nil || !strings.Contains(err.Error(), "gcloud components install") {
		t.Errorf("findEmulator = %v, want what to install", err)
	}
}

func skipWithoutEmulator(tb testing.TB) {
	tb.Helper()
	if _, _, err := findEmulator(); err != nil {
		tb.Skip(err)
	}
}

func start(tb testing.TB, start func(context.Context, string) (*Server, error)) *Server {
	tb.Helper()
	s, err := start(tb.Context(), anyPort)
	if errors.Is(err, ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func mustBeGone(tb testing.TB, addr string) {
	tb.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
	}
	tb.Errorf("something still listens at %s", addr)
}
