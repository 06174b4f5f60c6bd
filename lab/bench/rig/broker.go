package rig

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
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/localpubsub/peer"
)

// Broker is a Pub/Sub server in its own process. It is the repository's own server, or one that our
// server is compared with.
type Broker struct{ *Process }

// StartBroker starts an empty server. args are the arguments of [ServeBroker]. If the emulator is
// not installed, the error wraps [measure.ErrMissing].
func StartBroker(ctx context.Context, args ...string) (*Broker, error) {
	p, err := StartProcess(ctx, nil, append([]string{BrokerCommand}, args...)...)
	if err == nil {
		return &Broker{p}, nil
	}
	if strings.Contains(err.Error(), peer.ErrNotInstalled.Error()) {
		err = fmt.Errorf("%w: %w", measure.ErrMissing, peer.ErrNotInstalled)
	}
	return nil, err
}

// Profile starts the CPU profile for which the server was configured. The server writes the profile
// when it is closed.
func (b *Broker) Profile() error { return b.Signal(syscall.SIGUSR1) }

// StartProvisionedBroker starts a local Pub/Sub with the topics and
// subscriptions of the pair.
func StartProvisionedBroker(ctx context.Context) (*Broker, error) {
	b, err := StartBroker(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := broker.Provision(ctx, b.Addr, project); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Environment returns the environment variables with which a service finds the server.
func (b *Broker) Environment() []string {
	return []string{"GOOGLE_CLOUD_PROJECT=" + project, "PUBSUB_EMULATOR_HOST=" + b.Addr}
}

// SetFaults replaces the faults of a local Pub/Sub.
func (b *Broker) SetFaults(ctx context.Context, faults []localpubsub.Fault) error {
	plan, err := json.Marshal(localpubsub.FaultPlan{Seed: 1, Faults: faults})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+b.Addr+"/control/faults", bytes.NewReader(plan))
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
