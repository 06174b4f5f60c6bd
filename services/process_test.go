package services_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"example.com/lockstep/internal/local/process"
)

// build makes the commands of both services, once per run of the tests. Go records the commit in
// them, unless git refuses the repository because another user owns it, as in a container.
var build = sync.OnceValue(func() error {
	args := []string{"build", "-o", binaries}
	if exec.Command("git", "rev-parse").Run() != nil {
		args = append(args, "-buildvcs=false")
	}
	out, err := exec.Command("go", append(args, "./video/cmd/video", "./catalog/cmd/catalog")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	return nil
})

// spawned is a running command, as it is deployed.
type spawned struct {
	addr  string
	cmd   *exec.Cmd
	child *process.Process
}

// spawnVideo runs `video serve` at addr. It does not wait until that is ready.
func (w *world) spawnVideo(t testing.TB, addr string) *spawned {
	t.Helper()
	return w.spawn(t, "video", addr, "DATABASE_URL="+w.pg.VideoURL)
}

// spawnCatalog does the same with `catalog serve`.
func (w *world) spawnCatalog(t testing.TB, addr string) *spawned {
	t.Helper()
	return w.spawn(t, "catalog", addr, "DATABASE_URL="+w.pg.CatalogURL, "VIDEO_SERVICE_ADDR="+w.videoAddr)
}

// spawn runs a command that ends with the test at the latest, however the test ends.
func (w *world) spawn(t testing.TB, command, addr string, env ...string) *spawned {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return w.launch(t, exec.Command(filepath.Join(binaries, command), "serve"), addr, env...)
}

func (w *world) launch(t testing.TB, cmd *exec.Cmd, addr string, env ...string) *spawned {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), append(env, "PORT="+port, "GOOGLE_CLOUD_PROJECT="+w.project,
		"PUBSUB_EMULATOR_HOST="+w.broker.addr, "LOG_LEVEL=warn")...)
	running, err := process.Start(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	p := &spawned{addr: addr, cmd: cmd, child: running}
	t.Cleanup(func() {
		p.kill(t)
		if t.Failed() {
			t.Logf("%s at %s ended with %v; its last lines:\n%s", cmd.Path, addr, cmd.ProcessState, running.Output())
		}
	})
	return p
}

// ready waits until p serves.
func (p *spawned) ready(t testing.TB) {
	t.Helper()
	eventually(t, "the process at "+p.addr+" is ready", func() bool {
		select {
		case <-p.child.Done():
			t.Fatalf("%s ended: %s", p.cmd.Path, p.child.Output())
		default:
		}
		return ready(p.addr)
	})
}

// kill ends p as a crash of the machine would. It may have ended before.
func (p *spawned) kill(t testing.TB) {
	t.Helper()
	if err := p.child.Stop(syscall.SIGKILL, patience); err != nil {
		t.Error(err)
	}
}

// terminate asks p to end, waits until it has, and returns its exit code.
func (p *spawned) terminate(t testing.TB) int {
	t.Helper()
	if err := p.child.Stop(syscall.SIGTERM, patience); err != nil {
		t.Error(err)
	}
	return p.cmd.ProcessState.ExitCode()
}
