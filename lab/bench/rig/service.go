package rig

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

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/migrations"
)

// readyPoll is the pause between two readiness requests to a starting service. It is well below the
// measured times.
const readyPoll = 2 * time.Millisecond

// Service is the deployed binary of a service in its own process.
type Service struct {
	Addr  string
	PID   int
	Ready time.Duration // from exec to the first 200 of /readyz

	running *process.Process
}

// StartService starts the deployed binary of a service, and returns when the service is ready. At
// the first call it builds the binary as the Dockerfile does. The service listens on a free port of
// loopback, and uses its own role in d.
func StartService(
	ctx context.Context, service migrations.Service, d *Database, environment []string, args ...string,
) (_ *Service, err error) {
	dir, err := serviceBinaries()
	if err != nil {
		return nil, err
	}
	url, err := postgres.ServiceURL(ctx, d.Admin, "", service.Role())
	if err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_ = free.Close() // freed for the service
	s := &Service{Addr: free.Addr().String()}
	cmd := exec.Command(filepath.Join(dir, string(service)), args...)
	cmd.Env = slices.Concat(os.Environ(), environment,
		[]string{"DATABASE_URL=" + url, "PORT=" + strconv.Itoa(free.Addr().(*net.TCPAddr).Port)})
	start := time.Now()
	if s.running, err = process.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	s.PID = s.running.PID()
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Kill())
	}
	s.Ready = time.Since(start)
	return s, nil
}

// serviceBinaries builds both binaries, and returns their directory.
var serviceBinaries = sync.OnceValues(func() (string, error) {
	const dir = "build/start/"
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", dir,
		"./services/video/cmd/video", "./services/catalog/cmd/catalog")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the services: %w: %s", err, out)
	}
	return dir, nil
})

// awaitReady waits until /readyz answers 200.
func (s *Service) awaitReady(ctx context.Context) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+"/readyz", nil)
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
		case <-s.Ended():
			return fmt.Errorf("the service ended before it was ready: %s", s.Output())
		case <-ctx.Done():
			return fmt.Errorf("wait for the service: %w: %s", ctx.Err(), s.Output())
		}
	}
}

// Ended is closed when the process has ended.
func (s *Service) Ended() <-chan struct{} { return s.running.Done() }

// Output returns the end of the process's output.
func (s *Service) Output() string { return s.running.Output() }

// Kill ends the process at once, and returns when it has ended.
func (s *Service) Kill() error { return s.running.Stop(syscall.SIGKILL, grace) }

// Close makes the process drain, and returns when the process has ended.
func (s *Service) Close() error { return s.running.Stop(syscall.SIGTERM, drainTime) }

// drainTime is longer than a service takes to drain.
const drainTime = 15 * time.Second
