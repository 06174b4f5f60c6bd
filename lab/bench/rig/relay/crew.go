package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig/broker"
	"example.com/lockstep/lab/bench/rig/postgres"
	"example.com/lockstep/pkg/eventing/outbox"
)

// Crew is a group of relays of one outbox, each with its own pool, as in
// separate processes.
type Crew struct {
	pools   []*pgxpool.Pool
	relays  []*outbox.Relay
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// NewCrew returns n relays that are not running yet.
func NewCrew(ctx context.Context, d *postgres.Database, o *Outlet, n int) (*Crew, error) {
	c := new(Crew)
	for range n {
		pool, err := d.Pool(ctx, postgres.ServiceConns)
		if err == nil {
			err = c.Add(pool, o)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Add adds a relay. Close closes its pool.
func (c *Crew) Add(pool *pgxpool.Pool, o *Outlet) error {
	c.pools = append(c.pools, pool)
	relay, err := outbox.NewRelay(pool, o.Client, map[string]string{"video": broker.TopicName(broker.Subject)},
		slog.New(slog.DiscardHandler), func() {}, outbox.Options{})
	c.relays = append(c.relays, relay)
	return err
}

// Start runs the relays until Close.
func (c *Crew) Start(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	for _, relay := range c.relays {
		c.running.Go(func() { _ = relay.Run(ctx) }) // never fails
	}
}

// Wake wakes relay i modulo the number of relays, as a writer in its process
// does.
func (c *Crew) Wake(i int) { c.relays[i%len(c.relays)].Wake() }

// Close stops the relays, and returns when none is running.
func (c *Crew) Close() {
	if c.cancel != nil {
		c.cancel()
	}
	c.running.Wait()
	for _, pool := range c.pools {
		pool.Close()
	}
}

// Drain lets relays publish and mark all pending events, and returns events per
// second. events is the number of events of the transactions from since on.
func Drain(ctx context.Context, d *postgres.Database, o *Outlet, relays, events int, since string) (float64, error) {
	c, err := NewCrew(ctx, d, o, relays)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	o.Expect(events)
	start := time.Now()
	c.Start(ctx)
	if err := o.Await(ctx); err != nil {
		return 0, err
	}
	if err := c.marked(ctx, since); err != nil {
		return 0, err
	}
	return measure.PerSecond(events, start), nil
}

// AnyXact is before all transactions.
const AnyXact = "0"

// marked waits until no event of the transactions from since on is pending.
// Older events, and their dead rows, do not slow the query down.
func (c *Crew) marked(ctx context.Context, since string) error {
	const pending = `SELECT EXISTS (SELECT FROM outbox WHERE published_at IS NULL AND xact >= $1::text::xid8)`
	for {
		var some bool
		if err := c.pools[0].QueryRow(ctx, pending, since).Scan(&some); err != nil || !some {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
