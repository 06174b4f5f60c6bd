package reads

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/services/catalog"
)

// Command is the argument that runs this binary as an instance of catalog. The instance reads its
// environment like the deployed service.
const Command = "catalog"

// Serve serves catalog on a free port until ctx ends, and prints the address.
func Serve(ctx context.Context, stdout io.Writer) (err error) {
	r := command.NewEnvironment(os.Getenv)
	var cfg catalog.Config
	cfg.ReadEnvironment(r)
	if err := r.Err(); err != nil {
		return err
	}
	stop, err := telemetry.Setup(ctx, "catalog", command.Version) // reads are counted, as in production
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(context.WithoutCancel(ctx))) }()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	rig.Ready(stdout, lis.Addr().String(), os.Getpid())
	return catalog.Serve(ctx, cfg, lis, slog.New(slog.DiscardHandler))
}
