package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig/process"
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/localpubsub/peer"
)

// Server is a Pub/Sub server in its own process.
type Server struct{ *process.Server }

// Start starts an empty server, with the arguments of [Serve]. An emulator that is
// not installed is [measure.ErrMissing].
func Start(ctx context.Context, args ...string) (*Server, error) {
	s, err := process.Start(ctx, nil, append([]string{Command}, args...)...)
	if err == nil {
		return &Server{s}, nil
	}
	if strings.Contains(err.Error(), peer.ErrNotInstalled.Error()) {
		err = fmt.Errorf("%w: %w", measure.ErrMissing, peer.ErrNotInstalled)
	}
	return nil, err
}

// Profile starts the CPU profile that the server was configured with. The
// profile is written when the server is closed.
func (s *Server) Profile() error { return s.Signal(syscall.SIGUSR1) }

// StartProvisioned starts a local Pub/Sub with the topics and subscriptions of
// the pair.
func StartProvisioned(ctx context.Context) (*Server, error) {
	s, err := Start(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := broker.Provision(ctx, s.Addr, project); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Environment is the environment in which a service finds the server.
func (s *Server) Environment() []string {
	return []string{"GOOGLE_CLOUD_PROJECT=" + project, "PUBSUB_EMULATOR_HOST=" + s.Addr}
}

// SetFaults replaces the faults of a local Pub/Sub.
func (s *Server) SetFaults(ctx context.Context, faults []localpubsub.Fault) error {
	plan, err := json.Marshal(localpubsub.FaultPlan{Seed: 1, Faults: faults})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+s.Addr+"/control/faults", bytes.NewReader(plan))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("set faults: %s", response.Status)
	}
	return nil
}
