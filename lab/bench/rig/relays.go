package rig

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

// Relays are relays of one outbox. Each relay has its own pool, as if it were in its own process.
type Relays struct {
	pools   []*pgxpool.Pool
	relays  []*outbox.Relay
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// NewRelays returns n relays that are not running yet.
func NewRelays(ctx context.Context, d *Database, probe *BrokerProbe, n int) (*Relays, error) {
	r := new(Relays)
	for range n {
		pool, err := d.Pool(ctx, ServiceConns)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.Add(pool, probe)
	}
	return r, nil
}

// Add adds a relay that uses pool. Close closes the pool.
func (r *Relays) Add(pool *pgxpool.Pool, probe *BrokerProbe) {
	r.pools = append(r.pools, pool)
	r.relays = append(r.relays, outbox.NewRelay(pool, probe.Client, map[string]string{"video": TopicName(Topic)},
		slog.New(slog.DiscardHandler), func() {}, outbox.Options{}))
}

// Start runs the relays until Close.
func (r *Relays) Start(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	for _, relay := range r.relays {
		r.running.Go(func() { _ = relay.Run(ctx) }) // never fails
	}
}

// Wake wakes the first relay, like a writer in its process.
func (r *Relays) Wake() { r.relays[0].Wake() }

// Commit commits an event, like a writer in the process of relay i modulo the number of relays. It
// calls committed before the relay learns of the commit.
func (r *Relays) Commit(ctx context.Context, db *pgxpool.Pool, i int, e eventing.Event, committed func()) error {
	return CommitTo(ctx, db, r.relays[i%len(r.relays)], e, committed)
}

// CommitTo commits an event and hands it over to relay. It calls committed before relay learns of the
// commit.
func CommitTo(ctx context.Context, db *pgxpool.Pool, relay *outbox.Relay, e eventing.Event, committed func()) error {
	h := relay.Handover()
	if err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return h.Append(ctx, tx, nil, e) }); err != nil {
		h.Failed()
		return err
	}
	committed()
	if !h.Committed() {
		relay.Wake()
	}
	return nil
}

// Close stops the relays, and returns when none is running.
func (r *Relays) Close() {
	if r.cancel != nil {
		r.cancel()
	}
	r.running.Wait()
	for _, pool := range r.pools {
		pool.Close()
	}
}

// Drain makes relays publish and mark all pending events, and returns events per second. events is
// the number of these events. since is a transaction id that is not later than the ids of the
// transactions that have written the events.
func Drain(ctx context.Context, d *Database, probe *BrokerProbe, relays, events int, since string) (float64, error) {
	r, err := NewRelays(ctx, d, probe, relays)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	probe.Expect(events)
	start := time.Now()
	r.Start(ctx)
	if err := probe.Await(ctx); err != nil {
		return 0, err
	}
	if err := r.marked(ctx, since); err != nil {
		return 0, err
	}
	return measure.PerSecond(events, start), nil
}

// AnyXact is a transaction id that is not later than any other id.
const AnyXact = "0"

// marked waits until no event of the transactions from since on is pending. Older events and their
// dead rows do not slow the query down.
func (r *Relays) marked(ctx context.Context, since string) error {
	const pending = `SELECT EXISTS (SELECT FROM outbox WHERE published_at IS NULL AND xact >= $1::text::xid8)`
	for {
		var some bool
		if err := r.pools[0].QueryRow(ctx, pending, since).Scan(&some); err != nil || !some {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
