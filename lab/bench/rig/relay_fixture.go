package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/pkg/eventing"
)

// Committers is the number of concurrent transactions.
const Committers = 16

// RelayFixture is a service under load. It has writers with their own database, and relays that
// publish to a broker.
type RelayFixture struct {
	DB     *pgxpool.Pool
	Relays *Relays
	Probe  *BrokerProbe

	database  *Database
	mu        sync.Mutex
	committed map[string]time.Time // by aggregate, of which each has one event
	published map[string]time.Time
}

// Checkpoint writes the database's pages to the disk now, so that this does not happen in the
// middle of a measurement.
func (f *RelayFixture) Checkpoint(ctx context.Context) error {
	return f.database.AsAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `CHECKPOINT`)
		return err
	})
}

// Relaying configures the relays of a RelayFixture.
type Relaying struct {
	Relays       int
	Latency      time.Duration                 // of a publish
	Acknowledged func(*pubsubpb.PubsubMessage) // called in addition to the fixture; may be nil
}

// StartRelayFixture returns a fixture with running relays, in an unused database of p. The caller
// must close the fixture.
func StartRelayFixture(ctx context.Context, p *Postgres, r Relaying) (_ *RelayFixture, err error) {
	f := new(RelayFixture)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(ctx))
		}
	}()
	f.forget()
	if f.database, err = p.Fresh(ctx); err != nil {
		return nil, err
	}
	if f.Probe, err = OpenProbe(ctx, r.Latency); err != nil {
		return nil, err
	}
	f.Probe.acknowledged = func(m *pubsubpb.PubsubMessage, at time.Time) {
		f.acknowledged(m, at)
		if r.Acknowledged != nil {
			r.Acknowledged(m)
		}
	}
	if f.DB, err = f.database.Pool(ctx, Committers); err != nil {
		return nil, err
	}
	if f.Relays, err = NewRelays(ctx, f.database, f.Probe, r.Relays); err != nil {
		return nil, err
	}
	f.Relays.Start(ctx)
	_, err = f.Flood(ctx, time.Second/4) // connections prepare their statements
	return f, err
}

// Close stops the relays, and drops the database.
func (f *RelayFixture) Close(ctx context.Context) error {
	if f.Relays != nil {
		f.Relays.Close()
	}
	if f.DB != nil {
		f.DB.Close()
	}
	var errs []error
	if f.Probe != nil {
		errs = append(errs, f.Probe.Close())
	}
	if f.database != nil {
		errs = append(errs, f.database.Drop(ctx))
	}
	return errors.Join(errs...)
}

func (f *RelayFixture) acknowledged(m *pubsubpb.PubsubMessage, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.published[m.GetOrderingKey()] = at
}

func (f *RelayFixture) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.committed, f.published = map[string]time.Time{}, map[string]time.Time{}
}

// CommitOne commits one event of a new aggregate, and hands it over to a relay. i is the number of the
// call, and decides which relay is in the writer's process.
func (f *RelayFixture) CommitOne(ctx context.Context, i int) error {
	e := VideoCreated(uuid.Must(uuid.NewV7()), time.Now().UTC())
	return f.Relays.Commit(ctx, f.DB, i, e, func() { f.noteCommit(e) })
}

func (f *RelayFixture) noteCommit(e eventing.Event) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.committed[e.AggregateID] = now
}

// CommitsToPublishes waits until all committed events are published. It returns the time from the
// commit to the publish of each event, and forgets the events. If a relay publishes an event before
// the writer's commit returns, the time is zero.
func (f *RelayFixture) CommitsToPublishes(ctx context.Context) ([]time.Duration, error) {
	if err := f.Relays.marked(ctx, AnyXact); err != nil {
		return nil, err
	}
	defer f.forget()
	f.mu.Lock()
	defer f.mu.Unlock()
	took := make([]time.Duration, 0, len(f.committed))
	for id, at := range f.committed {
		published, ok := f.published[id]
		if !ok {
			return nil, fmt.Errorf("the event of %s is marked and not published", id)
		}
		took = append(took, max(0, published.Sub(at)))
	}
	return took, nil
}

// Flood commits events as fast as possible until limit is over. It returns events per second,
// counted until the last event is marked.
func (f *RelayFixture) Flood(ctx context.Context, limit time.Duration) (float64, error) {
	start := time.Now()
	if err := measure.Flood(ctx, Committers, limit, f.CommitOne); err != nil {
		return 0, err
	}
	took, err := f.CommitsToPublishes(ctx)
	return measure.PerSecond(len(took), start), err
}
