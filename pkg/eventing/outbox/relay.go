package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/bell"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// renewEvery leaves two more tries before a lease runs out.
	renewEvery = queue.LeaseTime / 3
	// publishTimeout bounds one publish request. A publish is never started
	// unless the lease outlasts it.
	publishTimeout = 8 * time.Second
	// drainTime is what publishes in flight get after Run is cancelled.
	drainTime = 3 * time.Second

	// A claim takes at most this much: enough that its round trip is a small part
	// of the work, little enough that the first of it is soon on its way.
	claimEvents       = 2000
	claimPerAggregate = 100
	claimBytes        = 8 << 20
	// A relay holds at most this much: three claims, of which one is being
	// published while another is settled.
	maxEvents = 3 * claimEvents
	maxBytes  = 3 * claimBytes
	// publishesInFlight keep a slow broker busy. The client spreads them over
	// connections of 100 streams each.
	publishesInFlight = 128

	// maxAttempts is how often an event is refused before it is parked.
	maxAttempts = 5
)

var (
	// idle is the pause after an empty poll. Its cap is the price of a lost
	// wake-up.
	idle = eventing.Backoff{Base: 100 * time.Millisecond, Cap: 5 * time.Second}
	// outage is the pause after a failed database or an unreachable broker.
	outage = eventing.Backoff{Base: 200 * time.Millisecond, Cap: 5 * time.Second}
	// refused is the pause of an aggregate whose event was refused.
	refused = eventing.Backoff{Base: time.Second, Cap: time.Minute}
)

// Options has a safe zero value.
type Options struct {
	// Retention is how long published events stay in the table; 0 is for ever.
	Retention time.Duration
	// ListenURL connects to the same database, as the same role, in a way that
	// keeps a session: LISTEN does not work through a transaction pooler. Empty
	// is the pool's own way.
	ListenURL string
}

// Relay publishes the outbox of one service. Any number may run on one outbox.
type Relay struct {
	queue    queue.Queue
	publish  publisher
	circuits map[string]*circuit // by aggregate type
	bell     *bell.Bell
	options  Options
	log      *slog.Logger
	beat     func()
	metrics  *metrics
	// token is this relay's name on its leases.
	token string

	flight  *flight
	agenda  *agenda
	joining joining
	// woken and tell are told of each Wake: the one makes this relay look, the
	// other the ones of other processes.
	woken, tell chan struct{}
	// failures counts, in a row, the claims that the database did not answer.
	failures atomic.Int64
	// backlog is how the outbox stood when that was last read.
	backlog atomic.Pointer[standing]
}

// NewRelay returns a relay of the outbox that db's search_path finds. topics
// maps aggregate types to full topic names (projects/P/topics/T); an event of
// any other type is parked. beat is called at least every few seconds while the
// relay is alive, whatever the database and the broker do.
func NewRelay(
	db *pgxpool.Pool, client *pubsub.Client, topics map[string]string, log *slog.Logger, beat func(), o Options,
) (*Relay, error) {
	r := &Relay{
		queue:    queue.New(db),
		publish:  publisher{client: client.TopicAdminClient, topics: topics},
		circuits: newCircuits(topics),
		bell:     bell.New(db, o.ListenURL, "outbox", log),
		options:  o,
		log:      log.With("component", "relay"),
		beat:     beat,
		token:    uuid.NewString(),
		flight:   newFlight(),
		agenda:   newAgenda(),
		woken:    make(chan struct{}, 1),
		tell:     make(chan struct{}, 1),
	}
	r.backlog.Store(&standing{})
	var err error
	r.metrics, err = newMetrics(r)
	if err != nil {
		return nil, fmt.Errorf("new relay: %w", err)
	}
	return r, nil
}

// Wake makes the relay look for events now, and those of other processes soon.
// Call it after the commit of a transaction that appended some. It never blocks,
// and is only a hint: relays poll all the same.
func (r *Relay) Wake() {
	signal(r.woken)
	signal(r.tell)
}

// Run relays until ctx ends, then lets publishes in flight finish for up to
// three seconds, hands back what it has leased, and returns nil. A relay runs
// once.
//
// It is a pipeline: one goroutine claims, some publish, one settles, so that the
// database and the broker are busy at the same time.
func (r *Relay) Run(ctx context.Context) error {
	defer r.metrics.unregister()
	flying, land := context.WithCancel(context.WithoutCancel(ctx))
	defer land()
	defer context.AfterFunc(ctx, func() {
		eventing.Sleep(flying, drainTime, nil)
		land()
	})()
	// Wide enough for all that the flight may hold: nobody ever waits to send.
	claimed, landed := make(chan *hold, maxEvents), make(chan landing, maxEvents)
	var publishing, settling, beside sync.WaitGroup
	for range publishesInFlight {
		publishing.Go(func() {
			for h := range claimed {
				landed <- landing{h, r.send(ctx, flying, h)}
			}
		})
	}
	settling.Go(func() { r.settling(ctx, landed) })
	beside.Go(func() { r.notify(ctx) })
	beside.Go(func() { _ = r.bell.Run(ctx, r.heard) }) // it ends with ctx, and never with an error
	beside.Go(func() { r.beating(ctx) })
	beside.Go(func() { r.watching(ctx) })
	if r.options.Retention > 0 {
		beside.Go(func() { r.purge(ctx) })
	}
	var claiming sync.WaitGroup
	claiming.Go(func() { r.scanning(ctx, flying, claimed) })
	r.claiming(ctx, claimed)
	claiming.Wait()
	close(claimed)
	publishing.Wait()
	close(landed)
	settling.Wait()
	beside.Wait()
	r.leave(ctx)
	return nil
}

// send publishes a hold and tells its topic's circuit. No request is begun after
// ctx has ended; flying is the context of those in flight.
func (r *Relay) send(ctx, flying context.Context, h *hold) report {
	c := r.circuits[h.run[0].AggregateType]
	rep := r.publish.run(flying, h.run, func() bool {
		return ctx.Err() == nil && (c == nil || h.probe || !c.open()) && h.outlasts(publishTimeout)
	})
	if c == nil {
		return rep
	}
	outage := rep.err != nil && !rep.rejected
	switch {
	case outage && flying.Err() == nil:
		var tripped bool
		rep.wait, tripped = c.failed(rep.err, h.probe)
		if tripped {
			r.log.WarnContext(ctx, "relay is held up, nothing is lost", "topic", c.topic, "error", rep.err, "failures", c.failures())
		}
	case rep.requests > 0 && !outage: // a refusal is an answer, too
		if c.succeeded() {
			r.log.InfoContext(ctx, "relay goes on", "topic", c.topic)
			r.agenda.resumed()
		}
	case h.probe:
		c.later(0)
	}
	return rep
}

// purge deletes old published events, a few pages of the table at a time.
func (r *Relay) purge(ctx context.Context) {
	for page := 0; ctx.Err() == nil; page += queue.PurgePages {
		_, more, err := r.queue.Purge(ctx, r.options.Retention, page)
		pause := purgePause
		switch {
		case err != nil && ctx.Err() == nil:
			r.log.WarnContext(ctx, "published events not purged", "error", err)
			fallthrough
		case !more:
			page, pause = -queue.PurgePages, purgeEvery
		}
		eventing.Sleep(ctx, pause, nil)
	}
}

const (
	// purgeEvery is how often the whole table is gone through, and purgePause the
	// pause between two parts of it.
	purgeEvery = time.Hour
	purgePause = 50 * time.Millisecond
)
