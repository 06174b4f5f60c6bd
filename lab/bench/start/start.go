// Package start is the series of cold starts, from exec to ready: each service
// is the deployed binary, in its own process, with a migrated database and a
// provisioned broker. It also measures the memory at rest.
package start

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	localpostgres "example.com/lockstep/internal/local/postgres"
	localprocess "example.com/lockstep/internal/local/process"
	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/migrations"
)

// readyPoll is the pause between two readiness requests to a starting service:
// well below the measured times.
const readyPoll = 2 * time.Millisecond

// stopTime bounds the time in which a service must end.
const stopTime = 10 * time.Second

// restTime is the idle time of a ready service before its memory is read.
var restTime = [...]time.Duration{measure.Quick: time.Second, measure.Normal: 5 * time.Second, measure.Full: 30 * time.Second}

// Series returns the series.
func Series(p *rig.Postgres) []measure.Series {
	s := measure.Series{Title: "cold start to ready, with migrations done, and memory at rest", Runs: 5}
	for _, service := range []migrations.Service{migrations.Video, migrations.Catalog} {
		s.Measurements = append(s.Measurements, measure.Measurement{
			Figures: []measure.Figure{
				{Name: fmt.Sprintf("start.%s_ready_ms", service), Unit: "ms", Note: "from exec to the first 200 of /readyz; 300 or less wanted"},
				{Name: fmt.Sprintf("start.%s_rss_mb", service), Unit: "MB", Note: "40 or less wanted"},
			},
			Run: func(ctx context.Context, size measure.Size) (measure.Reading, error) {
				return coldStart(ctx, p, service, restTime[size])
			},
		})
	}
	return []measure.Series{s}
}

// coldStart starts the service once. The catalog's owner is not running; a
// catalog at rest does not call it.
func coldStart(ctx context.Context, p *rig.Postgres, service migrations.Service, rest time.Duration) (_ measure.Reading, err error) {
	dir, err := serviceBinaries()
	if err != nil {
		return measure.Reading{}, err
	}
	d, err := p.ForBoth(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, d.Drop(ctx)) }()
	url, err := localpostgres.ServiceURL(ctx, d.Admin, "", service.Role())
	if err != nil {
		return measure.Reading{}, err
	}
	local, err := rig.StartProvisionedBroker(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	cmd := exec.Command(filepath.Join(dir, string(service)))
	cmd.Env = slices.Concat(os.Environ(), local.Environment(), []string{"DATABASE_URL=" + url, "VIDEO_SERVICE_ADDR=" + rig.NoListener})
	return startOnce(ctx, cmd, rest)
}

// serviceBinaries builds both binaries as the Dockerfile does, and returns
// their directory.
var serviceBinaries = sync.OnceValues(func() (string, error) {
	const dir = "build/start/"
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir,
		"./services/video/cmd/video", "./services/catalog/cmd/catalog")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the services: %w: %s", err, out)
	}
	return dir, nil
})

// startOnce starts the service, waits until it is ready, leaves it idle, and
// kills it.
func startOnce(ctx context.Context, cmd *exec.Cmd, rest time.Duration) (_ measure.Reading, err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return measure.Reading{}, err
	}
	_ = free.Close() // freed for the service
	cmd.Env = append(cmd.Env, "PORT="+strconv.Itoa(free.Addr().(*net.TCPAddr).Port))
	start := time.Now()
	running, err := localprocess.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, running.Stop(syscall.SIGKILL, stopTime)) }()
	if err := awaitReady(ctx, running, "http://"+free.Addr().String()+"/readyz"); err != nil {
		return measure.Reading{}, err
	}
	took := time.Since(start)
	select {
	case <-time.After(rest):
	case <-running.Done():
		return measure.Reading{}, fmt.Errorf("the service ended: %s", running.Output())
	case <-ctx.Done():
		return measure.Reading{}, ctx.Err()
	}
	memory, err := rig.RSS(cmd.Process.Pid)
	if err != nil {
		return measure.Reading{}, err
	}
	return measure.Reading{Values: []float64{measure.Milliseconds(took), memory}}, nil
}

// awaitReady returns once url answers 200.
func awaitReady(ctx context.Context, running *localprocess.Process, url string) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close() // the body is not read
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(readyPoll):
		case <-running.Done():
			return fmt.Errorf("the service ended before it was ready: %s", running.Output())
		case <-ctx.Done():
			return fmt.Errorf("wait for the service: %w: %s", ctx.Err(), running.Output())
		}
	}
}
