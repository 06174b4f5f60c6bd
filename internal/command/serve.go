package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/migrations"
)

const (
	defaultPort = 8080
	// flushTimeout bounds the sending of the last telemetry. Cloud Run gives a process 10 seconds to stop, and this
	// much of them is left if everything hangs: see package serve. It is enough for some round trips to a collector.
	flushTimeout = 500 * time.Millisecond
	// memoryShare is Go's share of the container's memory. The other tenth is for memory that Go's
	// collector does not count, such as the binary and pages of files.
	memoryShare = 0.9
	// healthTimeout bounds the request of the command health. It is longer than the 2 s that the server
	// gives its own checks.
	healthTimeout = 3 * time.Second
	// maxReason bounds the part of the server's answer that the error of health repeats, in bytes.
	maxReason = 1 << 10
)

func (s Service) serve(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	r := NewEnvironment(getenv)
	p := s.Configure(r)
	port, adminPort := ports(r)
	level := r.Level("LOG_LEVEL", slog.LevelInfo)
	if err := r.Err(); err != nil {
		return err
	}
	log := telemetry.Logger(stdout, level, string(s.Name), p.Project)
	log.InfoContext(ctx, "starting", "version", Version, "revision", commit())
	limitMemory(ctx, log, memlimit.FromCgroup)
	warnOfServers(ctx, log, getenv)
	telemetry.LogErrors(log)
	flush, err := telemetry.Setup(ctx, string(s.Name), Version)
	if err != nil {
		return err
	}
	lis, admin, err := listen(port, adminPort)
	if err != nil {
		return err
	}
	if admin != nil {
		defer admin.Close()
	}
	err = p.Serve(ctx, lis, admin, log)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := flush(ctx); err != nil {
		log.WarnContext(ctx, "last telemetry not sent", "error", err)
	}
	return err
}

// ports returns the port of the API, and the port of health, readiness and metrics. If the API's
// port also serves health, readiness and metrics, admin is 0.
func ports(r *Environment) (api, admin int) {
	api, admin = r.Int("PORT", defaultPort, 1, 65535), r.Int("ADMIN_PORT", 0, 1, 65535)
	if admin != 0 && admin == api {
		r.badf("ADMIN_PORT", "must not be PORT: leave it unset to have health on PORT")
	}
	return api, admin
}

// listen opens the ports on all interfaces, because probes and scrapers come from outside of the
// container.
func listen(port, adminPort int) (lis, admin net.Listener, err error) {
	if lis, err = net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port))); err != nil || adminPort == 0 {
		return lis, nil, err
	}
	if admin, err = net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(adminPort))); err != nil {
		return nil, nil, errors.Join(err, lis.Close())
	}
	return lis, admin, nil
}

func (s Service) migrate(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	r := NewEnvironment(getenv)
	url, level := r.RequiredURL("DATABASE_URL"), r.Level("LOG_LEVEL", slog.LevelInfo)
	if err := r.Err(); err != nil {
		return err
	}
	log := telemetry.Logger(stdout, level, string(s.Name), "")
	warnOfServers(ctx, log, getenv)
	err := connect.AwaitDatabase(ctx, url, func(err error) { log.WarnContext(ctx, "waiting for the database", "error", err) })
	if err != nil {
		return err
	}
	return migrations.Up(ctx, url, s.Name, log)
}

// warnOfServers logs a warning for each database server that has a public address and need not
// prove its identity. It returns no error, because a private network may have public addresses.
func warnOfServers(ctx context.Context, log *slog.Logger, getenv func(string) string) {
	for _, variable := range []string{"DATABASE_URL", "LISTEN_DATABASE_URL"} {
		if host := connect.UnverifiedServer(getenv(variable)); host != "" {
			log.WarnContext(ctx, "database server is not verified: use sslmode=verify-full", "variable", variable, "host", host)
		}
	}
}

// limitMemory makes the collector work harder when the heap comes near the limit of the container.
// Otherwise the collector may let the heap double and exceed the limit. If GOMEMLIMIT is set, it
// takes precedence. limitMemory does not bound the size of a request. The code that reads a request
// bounds it.
func limitMemory(ctx context.Context, log *slog.Logger, container memlimit.Provider) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(container))
	if err != nil { // not Linux, or no cgroup, as on a laptop
		log.DebugContext(ctx, "memory limit of the container not read", "error", err)
		return
	}
	log.DebugContext(ctx, "memory limit of the collector", "bytes", limit)
}

// health asks the server on this machine whether it is ready. Some container engines can check
// health only by a command in the image, and the image need not hold another command for that.
func (Service) health(ctx context.Context, getenv func(string) string, _ io.Writer) error {
	r := NewEnvironment(getenv)
	port, adminPort := ports(r)
	if err := r.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(cmp.Or(adminPort, port))) + "/readyz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// Unlike the default transport, this one uses no proxy.
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	reason, err := io.ReadAll(io.LimitReader(response.Body, maxReason))
	return errors.Join(fmt.Errorf("not ready: %s: %s", response.Status, reason), err)
}
