package outbox

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/hook"
	"example.com/lockstep/pkg/eventing/notify"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// renewEvery leaves two more tries before a lease runs out.
	renewEvery = queue.LeaseTime / 3
	// publishTimeout bounds one publish request. A request is never started unless the
	// lease is valid for longer.
	publishTimeout = 8 * time.Second
	// drainTime is the time that publishes and claims in flight get after Run is cancelled.
	// settleTime is the time after that for writing their results: the server in front
	// leaves a process 4 of its 10 seconds.
	drainTime  = 3 * time.Second
	settleTime = 800 * time.Millisecond

	// A claim takes at most this much: enough that its round trip is a small part of the
	// work, little enough that its first events are soon on their way.
	claimEvents = 2000
	claimBytes  = 8 << 20
	// A relay holds at most this much: three claims, of which one is being published while
	// another is settled.
	maxEvents = 3 * claimEvents
	maxBytes  = 3 * claimBytes
	// publishesInFlight keep a slow broker busy. The client spreads them over connections
	// of 100 streams each.
	publishesInFlight = 128

	// notifyEvery is the least time between two notifications about this process's commits.
	notifyEvery = time.Second
)

var (
	// idlePause is the pause after a claim that found nothing. Its cap is the price of a
	// lost notification.
	idlePause = backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}
	// outagePause is the pause after a failure of the database or the broker, unless Options
	// say otherwise.
	outagePause = backoff.Policy{Base: 200 * time.Millisecond, Cap: 5 * time.Second}
)

// Relay publishes the outbox of one service. Any number may run on one outbox.
type Relay struct {
	queue     queue.Queue
	publisher publisher
	pauses    map[string]*topicPause // by aggregate type; types of one topic share its pause
	notifier  *notify.Notifier
	options   Options
	log       *slog.Logger
	heartbeat func()
	metrics   *metrics
	// token is this relay's name on its leases.
	token string
	// drainFor and settleFor are drainTime and settleTime; tests have others.
	drainFor, settleFor time.Duration

	inFlight     *inFlight
	followUps    *followUps
	calls        *hook.Calls
	registration registration
	claimSize    *claimSize
	tenants      *tenantRates
	// wakeups signals new events to the claims, wakeProbes that a paused topic may be due for
	// a probe.
	wakeups, wakeProbes chan struct{}
	// failures counts, in a row, the claims that the database did not answer.
	failures atomic.Int64
	// backlog is the last reading of the backlog.
	backlog atomic.Pointer[backlogReading]
}

// NewRelay returns a relay of the outbox that db's search_path finds. topics maps aggregate
// types to full topic names (projects/P/topics/T); an event of any other type is parked.
// The relay calls heartbeat at least every few seconds while it is alive, whatever the
// state of database and broker.
func NewRelay(
	db *pgxpool.Pool, client *pubsub.Client, topics map[string]string, log *slog.Logger, heartbeat func(), o Options,
) *Relay {
	o = o.within()
	r := &Relay{
		queue:      queue.New(db),
		publisher:  publisher{client: client.TopicAdminClient, topics: topics},
		pauses:     newTopicPauses(topics, o.OutageBackoff),
		notifier:   notify.New(db, o.ListenURL, "outbox", log),
		options:    o,
		log:        log.With("component", "relay"),
		heartbeat:  heartbeat,
		token:      uuid.NewString(),
		drainFor:   drainTime,
		settleFor:  settleTime,
		inFlight:   newInFlight(),
		followUps:  newFollowUps(),
		calls:      hook.New(log.With("component", "relay"), "OnRefused", "OnPaused"),
		claimSize:  newClaimSize(),
		tenants:    newTenantRates(cmp.Or(o.TenantRate, DefaultTenantRate), o.Canary),
		wakeups:    make(chan struct{}, 1),
		wakeProbes: make(chan struct{}, 1),
	}
	r.notifier.Every = notifyEvery
	r.backlog.Store(&backlogReading{})
	r.metrics = newMetrics(r)
	return r
}

// Wake makes the relay claim now, and the relays of other processes soon. Call it after the
// commit of a transaction that appended events. It never blocks, and is only a hint: relays
// poll all the same.
func (r *Relay) Wake() {
	signal(r.wakeups)
	r.notifier.Publish("") // no keys: a relay claims whatever is new
}

// onNotify wakes the claims when another relay has notified this one, and when
// notifications begin to arrive: no notification has told of earlier commits.
func (r *Relay) onNotify(notify.Notification) { signal(r.wakeups) }

// Run relays until ctx ends, then lets publishes in flight finish for up to three seconds,
// hands back its leases, and returns nil, no later than 0.8 seconds after that, whatever
// the database does. A relay runs once.
//
// It is a pipeline: one goroutine claims, some publish, one settles, so that the database
// and the broker are busy at the same time.
func (r *Relay) Run(ctx context.Context) error {
	defer r.metrics.unregister()
	flying, land := outlive(ctx, r.drainFor)
	defer land()
	closing, closed := outlive(ctx, r.drainFor+r.settleFor)
	defer closed()
	stopCalls := r.calls.Start(ctx)
	// The channels take everything that may be in flight: no send ever waits.
	const most = maxEvents + maxCandidates
	claimed, results := make(chan *leasedBatch, most), make(chan publishResult, most)
	var publishing, settling, background sync.WaitGroup
	for range publishesInFlight {
		publishing.Go(func() {
			for h := range claimed {
				answer := r.send(ctx, flying, h)
				r.inFlight.answer(h)
				results <- publishResult{h, answer}
			}
		})
	}
	settling.Go(func() { r.settleLoop(ctx, closing, results) })
	background.Go(func() { _ = r.notifier.Run(ctx, r.onNotify) }) // it ends with ctx, and never with an error
	background.Go(func() { r.heartbeatLoop(ctx) })
	background.Go(func() { r.watchBacklog(ctx) })
	if r.options.Retention > 0 {
		background.Go(func() { r.purge(ctx) })
	}
	var claiming sync.WaitGroup
	claiming.Go(func() { r.scanLoop(ctx, flying, claimed) })
	claiming.Go(func() { r.turnLoop(ctx, flying, claimed) })
	claiming.Go(func() { r.probeLoop(ctx, flying, claimed) })
	r.claimLoop(ctx, claimed)
	claiming.Wait()
	close(claimed)
	publishing.Wait()
	close(results)
	settling.Wait()
	background.Wait()
	r.deregister(closing)
	stopCalls(closing)
	return nil
}

// outlive returns a context that ends d after ctx has.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		backoff.Sleep(longer, d, nil)
		end()
	})
	return longer, func() { stop(); end() }
}
