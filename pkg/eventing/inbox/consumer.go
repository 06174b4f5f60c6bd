package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
)

const (
	// maxBatch is how many messages share a transaction: beyond a few hundred
	// the commit is no longer what costs.
	maxBatch = 500
	// The client holds at most this much before it stops pulling. Bytes bound
	// memory; messages bound throughput as well, which is at most this many per
	// 100 ms, since acks leave in such bundles.
	maxOutstandingBytes    = 64 << 20
	maxOutstandingMessages = 10_000

	// batchTimeout bounds one transaction, so that a stuck one is rolled back
	// long before anybody else waits for its locks in vain.
	batchTimeout = 10 * time.Second
	// drainTime is what the transaction in hand gets after Run is cancelled.
	drainTime = 3 * time.Second
	// beatEvery is how often an idle consumer shows that it is alive.
	beatEvery = 10 * time.Second
)

// outage is the pause while the database or the broker is away.
var outage = eventing.Backoff{Base: 100 * time.Millisecond, Cap: 5 * time.Second}

// Outcome is what Apply did with an event.
type Outcome int

// The outcomes of applying an event.
const (
	// Applied means that the read model moved to the event's version.
	Applied Outcome = iota + 1
	// Stale means that the read model was there already or beyond. Nothing was
	// written.
	Stale
	// Gap means that the read model lacks the version before. Nothing was
	// written; the consumer repairs the aggregate from its owner.
	Gap
)

func (o Outcome) String() string {
	return [...]string{Applied: "applied", Stale: "stale", Gap: "gap"}[o]
}

// Handler is what a service does with its events.
type Handler struct {
	// Apply brings the read model forward by e within tx, which other events
	// share. An error rolls all of them back, and they are tried again in
	// smaller parts until e is alone. eventing.Permanent sends e to the dead
	// letters at once; otherwise it is tried a few times first. Apply must not
	// call another service: it holds locks.
	Apply func(ctx context.Context, tx pgx.Tx, e eventing.Event) (Outcome, error)
	// Repair brings e's aggregate to e.Version or beyond with what its owner
	// has, in transactions of its own. Its errors are tried again for as long
	// as it takes, except for eventing.Permanent ones.
	Repair func(ctx context.Context, e eventing.Event) error
	// Committed is told, after each commit, the keys (eventing.Event.Key) of
	// the aggregates that moved. It must not block.
	Committed func(keys ...string)
}

// Consumer applies the events of one subscription. Any number may run on it.
type Consumer struct {
	store      store
	subscriber *pubsub.Subscriber
	dead       deadLetters
	handler    Handler
	log        *slog.Logger
	beat       func()
	metrics    *metrics

	incoming chan *delivery
	holds    *holds
}

// NewConsumer returns a consumer of a subscription of client's project. Dead
// letters go to the topic `<subscription>.dlq`. The inbox is the one that db's
// search_path finds. beat is called at least every ten seconds while the
// consumer is alive, whatever the database and the broker do.
func NewConsumer(
	db *pgxpool.Pool, client *pubsub.Client, subscription string, h Handler, log *slog.Logger, beat func(),
) (*Consumer, error) {
	m, err := newMetrics(subscription)
	if err != nil {
		return nil, fmt.Errorf("new consumer: %w", err)
	}
	sub := client.Subscriber(subscription)
	sub.ReceiveSettings.MaxOutstandingBytes = maxOutstandingBytes
	sub.ReceiveSettings.MaxOutstandingMessages = maxOutstandingMessages
	return &Consumer{
		store:      store{db: db, consumer: subscription},
		subscriber: sub,
		dead: deadLetters{
			client: client.TopicAdminClient,
			topic:  "projects/" + client.Project() + "/topics/" + subscription + ".dlq",
		},
		handler:  h,
		log:      log.With("component", "consumer", "subscription", subscription),
		beat:     beat,
		metrics:  m,
		incoming: make(chan *delivery, maxBatch),
		holds:    newHolds(),
	}, nil
}

// Run consumes until ctx ends, then finishes the transaction in hand, gives
// everything else back to the broker, and returns nil.
func (c *Consumer) Run(ctx context.Context) error {
	defer c.metrics.unregister()
	received := make(chan struct{})
	go func() {
		defer close(received)
		c.receive(ctx)
	}()
	c.work(ctx)
	// Receive returns when everything it handed out is settled.
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	for {
		select {
		case d := <-c.incoming:
			d.nack()
		case <-received:
			return nil
		case <-limit.C:
			c.log.WarnContext(ctx, "stream did not close in time, its messages come back when their leases end")
			return nil
		}
	}
}

// receive keeps a stream open. The client reopens one that breaks; what it
// reports is a subscription that is missing or refused, which an operator
// mends while we wait.
func (c *Consumer) receive(ctx context.Context) {
	for failures := 0; ; {
		opened := time.Now()
		err := c.subscriber.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			// Return at once: the client hands out the next message of a key
			// only then, and a callback that waited for the commit would make
			// every batch one message per key.
			select {
			case c.incoming <- newDelivery(m):
			case <-ctx.Done():
				m.Nack()
			}
		})
		if ctx.Err() != nil {
			return
		}
		failures++
		if time.Since(opened) > outage.Cap {
			failures = 1 // it worked for a while: this is a new fault
		}
		pause := outage.Delay(failures)
		c.log.ErrorContext(ctx, "subscription cannot be pulled", "error", err, "retry_in_ms", pause.Milliseconds())
		eventing.Sleep(ctx, pause, nil)
	}
}

// work applies what arrives, and what comes back from a hold, until ctx ends.
func (c *Consumer) work(ctx context.Context) {
	alive := time.NewTicker(beatEvery)
	defer alive.Stop()
	defer c.holds.nackAll()
	for {
		c.beat()
		var batch []*delivery
		select {
		case <-ctx.Done():
			return
		case <-alive.C:
			continue
		case key := <-c.holds.released:
			batch = c.holds.take(key)
		case d := <-c.incoming:
			batch = c.gather(d)
		}
		for _, d := range c.apply(ctx, fold(batch)) {
			d.nack()
		}
	}
}

// gather adds to first what has arrived already. It does not wait for more: a
// lone message is applied at once, and under load the next batch fills up while
// this one commits.
func (c *Consumer) gather(first *delivery) []*delivery {
	batch := []*delivery{first}
	for len(batch) < maxBatch {
		select {
		case d := <-c.incoming:
			batch = append(batch, d)
		default:
			return batch
		}
	}
	return batch
}
