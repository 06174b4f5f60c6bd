package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"go.opentelemetry.io/otel"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/services/catalog"
	"example.com/lockstep/services/video"
)

// Command is the argument that runs this binary as the service video or catalog, in a mode.
const Command = "traced"

// The modes of a pair.
const (
	on   = "on"
	off  = "off"
	none = "none"
)

var modes = []string{on, off, none}

// Serve runs a service on a free port until ctx ends, and prints the address. args are the service
// and the mode. If the mode is on, the environment names the collector.
func Serve(ctx context.Context, args []string, stdout io.Writer) (err error) {
	if len(args) != 2 {
		return fmt.Errorf("%s: want a service and a mode", Command)
	}
	service, mode := args[0], args[1]
	if mode == none {
		otel.SetTracerProvider(tracenoop.NewTracerProvider())
		otel.SetMeterProvider(metricnoop.NewMeterProvider())
	} else {
		stop, err := telemetry.Setup(ctx, service, command.Version)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop(context.WithoutCancel(ctx))) }()
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	log := telemetry.Logger(io.Discard, slog.LevelInfo, service, "")
	r := command.NewEnvironment(os.Getenv)
	rig.Ready(stdout, lis.Addr().String(), os.Getpid())
	if service == "catalog" {
		var cfg catalog.Config
		cfg.ReadEnvironment(r)
		return catalog.Serve(ctx, cfg, lis, log)
	}
	var cfg video.Config
	cfg.ReadEnvironment(r)
	return video.Serve(ctx, cfg, lis, log)
}
