package services_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/lockstep/internal/porttest"
)

// countingProxy passes connections on to addr, and counts the bytes in both directions.
func countingProxy(t *testing.T, addr string) (at string, bytes *atomic.Int64) {
	t.Helper()
	lis := porttest.Listen(t)
	t.Cleanup(func() { lis.Close() })
	bytes = &atomic.Int64{}
	pass := func(to, from net.Conn) {
		n, _ := io.Copy(to, from)
		bytes.Add(n)
		to.Close()
		from.Close()
	}
	go func() {
		for {
			client, err := lis.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			go pass(server, client)
			go pass(client, server)
		}
	}()
	return lis.Addr().String(), bytes
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is the most memory that p has had, in MiB.
func (p *spawned) peak(t *testing.T) (mib float64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skip("not on Linux")
	}
	var kib float64
	if _, err := fmt.Sscan(peakLine.FindStringSubmatch(string(status))[1], &kib); err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}

// TestReconcileAMillionRows prints the cost of a check of a million rows, equal ones and then
// some that differ, within 20,000 rows a second and without a limit.
func TestReconcileAMillionRows(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("takes minutes: LOCKSTEP_FULL=1")
	}
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	video := w.spawnVideo(t, w.videoAddr)
	video.ready(t)
	w.seed(t, 600_000, 400_000)
	idle := video.peak(t)
	run := func(name, flags string, differ, code int) {
		t.Helper()
		addr, bytes := countingProxy(t, w.videoAddr)
		began := time.Now()
		cmd := o.shell(t, "exec catalog reconcile --json "+flags+" > result.json", "VIDEO_SERVICE_ADDR="+addr)
		cmd.Env = append(cmd.Env, "VIDEO_SERVICE_ADDR="+addr) // the last one counts
		cmd.Dir = t.TempDir()
		said, _ := cmd.CombinedOutput()
		took := time.Since(began)
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Fatalf("%s: code %d, want %d: %s", name, got, code, said)
		}
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		t.Logf("%s: 1,000,000 rows, %d differ: %.1f s, %.2f MB over the wire, at most %.0f MiB in catalog, %.0f MiB in video (%.0f before)",
			name, differ, took.Seconds(), float64(bytes.Load())/1e6, float64(usage.Maxrss)/1024, video.peak(t), idle)
	}
	run("20,000 rows/s", "", 0, 0)
	run("no limit", "--rate 0", 0, 0)
	want := w.damage(t, 42)
	run("no limit", "--rate 0", len(want), 1)
	run("no limit, with the repair", "--rate 0 --repair --yes --why test", len(want), 0)
	// The rows that the owner does not know are tombstones now, which are not compared.
	if r := o.reconcile(t, "--rate 0"); r.Code != 0 || r.RowsChecked != w.compared(t)-len(replicas)*42 {
		t.Errorf("after the repair: %+v, of %d rows", r, w.compared(t))
	}
}
