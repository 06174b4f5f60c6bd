package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/pkg/eventing"
)

const (
	// leaseTime is how long a dead relay's events wait for another one. Well
	// under 30 s together with one idle poll; well over publishTimeout.
	leaseTime = 20 * time.Second
	// renewEvery leaves two more tries before a lease runs out.
	renewEvery = leaseTime / 3
	// publishTimeout bounds one publish request. A publish is never started
	// unless the lease outlasts it.
	publishTimeout = 8 * time.Second
	// drainTime is what publishes in flight get after Run is cancelled.
	drainTime = 3 * time.Second

	// A round claims up to 100 × 20 events: enough that the round trips of
	// claim and settle are a small part of it, little enough to hold in memory.
	claimAggregates   = 100
	claimPerAggregate = 20
	// publishesInFlight is below the 100 streams of one HTTP/2 connection.
	publishesInFlight = 64

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

// Relay publishes the outbox of one service. Any number may run on one outbox.
type Relay struct {
	store   store
	publish publisher
	log     *slog.Logger
	beat    func()
	wake    chan struct{}
	metrics *metrics
}

// NewRelay returns a relay of the outbox that db's search_path finds. topics
// maps aggregate types to full topic names (projects/P/topics/T); an event of
// any other type is parked. beat is called at least every few seconds while the
// relay is alive, whatever the database and the broker do.
func NewRelay(db *pgxpool.Pool, client *pubsub.Client, topics map[string]string, log *slog.Logger, beat func()) (*Relay, error) {
	r := &Relay{
		store:   store{db},
		publish: publisher{client: client.TopicAdminClient, topics: topics},
		log:     log.With("component", "relay"),
		beat:    beat,
		wake:    make(chan struct{}, 1),
	}
	var err error
	r.metrics, err = newMetrics(r.store)
	if err != nil {
		return nil, fmt.Errorf("new relay: %w", err)
	}
	return r, nil
}

// Wake makes the relay look for events now. Call it after the commit of a
// transaction that appended some. It never blocks, and is only a hint: the
// relay polls all the same.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// Run relays until ctx ends, then lets publishes in flight finish for up to
// three seconds, hands back what it has leased, and returns nil.
func (r *Relay) Run(ctx context.Context) error {
	defer r.metrics.unregister()
	empty, failures := 0, 0
	for ctx.Err() == nil {
		r.beat()
		n, err := r.round(ctx, failures > 0)
		var pause time.Duration
		switch {
		case err != nil:
			failures++
			empty = 0
			pause = outage.Delay(failures)
			r.log.WarnContext(ctx, "relay is held up, nothing is lost", "error", err, "failures", failures, "retry_in_ms", pause.Milliseconds())
		case n == 0:
			empty++
			failures = 0
			pause = idle.Delay(empty)
		default:
			// There may be more: look again at once.
			empty, failures = 0, 0
			continue
		}
		r.metrics.failing(failures)
		wake := r.wake
		if failures > 0 {
			wake = nil // new work does not make the broker come back
		}
		eventing.Sleep(ctx, pause, wake)
	}
	return nil
}

// round claims, publishes and settles once, and returns the number of events
// claimed. Its error is an outage of the database or the broker. After one, a
// probe of a single aggregate goes ahead of the rest.
func (r *Relay) round(ctx context.Context, probe bool) (int, error) {
	aggregates := claimAggregates
	if probe {
		aggregates = 1
	}
	l := newLease(r.store)
	// Not cancelled with ctx: a claim that is given up may still commit, after
	// the settle that would have handed it back.
	claimed, err := r.store.claim(context.WithoutCancel(ctx), l.token, leaseTime, aggregates, claimPerAggregate)
	if err != nil || len(claimed) == 0 {
		return 0, err
	}
	reports := r.publishAll(ctx, l, claimed)
	n := 0
	for _, run := range claimed {
		n += len(run)
	}
	return n, errors.Join(outageOf(reports), r.settle(ctx, l, reports))
}

// publishAll publishes the runs side by side and returns a report for each.
// Publishes in flight outlive ctx by drainTime; no new one is begun by then.
func (r *Relay) publishAll(ctx context.Context, l *lease, claimed []run) []report {
	flight, land := context.WithCancel(context.WithoutCancel(ctx))
	defer land()
	defer context.AfterFunc(ctx, func() {
		eventing.Sleep(flight, drainTime, nil)
		land()
	})()
	renewing, stop := context.WithCancel(flight)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		l.keep(renewing, r.log)
	}()

	reports := make([]report, len(claimed))
	var down circuit
	var g errgroup.Group
	g.SetLimit(publishesInFlight)
	for i, run := range claimed {
		g.Go(func() error {
			r.beat()
			reports[i] = r.publish.run(flight, run, func() bool {
				return ctx.Err() == nil && !down.open() && l.outlasts(publishTimeout)
			})
			if reports[i].outage != nil {
				down.trip()
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no error: reports carry them
	stop()
	<-renewed
	return reports
}

// settle writes the reports back, trying again while the lease lasts. When it
// gives up the rows stay leased until that runs out, and are then sent again.
func (r *Relay) settle(ctx context.Context, l *lease, reports []report) error {
	// What the broker has acknowledged must be written down even when Run is
	// being cancelled.
	settling := context.WithoutCancel(ctx)
	var published []uuid.UUID
	var rejected []rejection
	for _, rep := range reports {
		for _, e := range rep.published {
			published = append(published, e.ID)
		}
		if rep.rejected != nil {
			rejected = append(rejected, r.reject(ctx, *rep.rejected, rep.reason))
		}
	}
	for attempt := 1; ; attempt++ {
		lost, err := r.store.settle(settling, l.token, published, rejected)
		if err == nil {
			r.metrics.settled(ctx, reports, lost)
			return nil
		}
		// The last write-back may take no longer than a shutdown allows.
		if attempt == 3 || ctx.Err() != nil {
			return err
		}
		eventing.Sleep(ctx, outage.Delay(attempt), nil)
	}
}

func (r *Relay) reject(ctx context.Context, c claimed, reason error) rejection {
	attempt := c.attempts + 1
	park := attempt >= maxAttempts
	level := slog.LevelWarn
	if park {
		level = slog.LevelError
	}
	r.log.Log(ctx, level, "broker refused event", append(c.LogAttrs(), "attempt", attempt, "parked", park, "error", reason)...)
	return rejection{id: c.ID, reason: reason.Error(), retry: refused.Delay(attempt), park: park}
}
