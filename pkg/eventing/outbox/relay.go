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
	// renewEvery is the age at which a lease is renewed. If the renewal fails, there is time for
	// two more tries before the lease runs out.
	renewEvery = queue.LeaseTime / 3
	// publishTimeout bounds one publish request. A request starts only if the lease of its batch
	// lasts longer than publishTimeout.
	publishTimeout = 8 * time.Second
	// drainTime is the time that publishes and claims in flight get after the end of Run's context.
	// settleTime is the time that the writing of their results gets after drainTime. Both are short,
	// because a process has 10 s to stop, and the shutdown of its server takes up to 5.5 s of them.
	drainTime  = 3 * time.Second
	settleTime = 600 * time.Millisecond

	// claimEvents and claimBytes limit the events and the bytes that a claim takes. The limits are
	// large enough that the round trip of a claim is a small part of the work, and small enough
	// that the first events of a claim are soon on their way.
	claimEvents = 2000
	claimBytes  = 8 << 20
	// maxEvents and maxBytes limit the events and the bytes that a relay holds to three claims. So
	// one claim can be published while another claim is settled.
	maxEvents = 3 * claimEvents
	maxBytes  = 3 * claimBytes
	// publishesInFlight is how many goroutines publish. They are enough to keep a slow broker busy.
	// The client spreads their requests over several connections, each with up to 100 streams.
	publishesInFlight = 128

	// notifyEvery is the least time between two notifications about this process's commits.
	notifyEvery = time.Second
)

var (
	// idlePause is the pause after a claim that found nothing. Its cap is how long events wait
	// if a notification is lost.
	idlePause = backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}
	// outagePause is the default of Options.OutageBackoff, and the pause after results could not be
	// written, whatever the options are.
	outagePause = backoff.Policy{Base: 200 * time.Millisecond, Cap: 5 * time.Second}
)

// Relay publishes the outbox of one service. Any number of relays may run on one outbox.
type Relay struct {
	queue     queue.Queue
	publisher publisher
	pauses    map[string]*topicPause // by aggregate type; types of one topic share its pause
	notifier  *notify.Notifier
	options   Options
	log       *slog.Logger
	heartbeat func()
	metrics   *metrics
	// token identifies this relay on its leases.
	token string
	// lastFor, drainFor and settleFor are lastTime, drainTime and settleTime, except in tests.
	lastFor, drainFor, settleFor time.Duration

	inFlight     *inFlight
	followUps    *followUps
	calls        *hook.Calls
	registration registration
	claimSize    *claimSize
	tenants      *tenantRates
	// wakeups signals new events to the claim loop. wakeProbes signals the probe loop that a
	// paused topic may be due for a probe. wakeHeartbeats signals the heartbeat loop that the relay must
	// meet another server.
	wakeups, wakeProbes, wakeHeartbeats chan struct{}
	// failures is how many claims in a row have failed.
	failures atomic.Int64
	// clock is the last reading of the database's clock, or nil.
	clock atomic.Pointer[queue.Clock]
	// backlog is the last reading of the backlog.
	backlog atomic.Pointer[backlogReading]
}

// NewRelay returns a relay of the outbox that db's search_path finds. topics maps aggregate
// types to full topic names (projects/P/topics/T). An event of any other type is parked. While
// the relay is alive, it calls heartbeat at least every few seconds, even if the database or the
// broker is down.
func NewRelay(
	db *pgxpool.Pool, client *pubsub.Client, topics map[string]string, log *slog.Logger, heartbeat func(), o Options,
) *Relay {
	o = o.within()
	own := log.With("component", "relay")
	r := &Relay{
		queue:      queue.New(db),
		publisher:  publisher{client.TopicAdminClient, topics, own},
		pauses:     newTopicPauses(topics, o.OutageBackoff),
		notifier:   notify.New(db, o.ListenURL, "outbox", log),
		options:    o,
		log:        own,
		heartbeat:  heartbeat,
		token:      uuid.NewString(),
		lastFor:    lastTime,
		drainFor:   drainTime,
		settleFor:  settleTime,
		inFlight:   newInFlight(),
		followUps:  newFollowUps(),
		calls:      hook.New(own, "OnRefused", "OnPaused"),
		claimSize:  newClaimSize(),
		tenants:    newTenantRates(cmp.Or(o.TenantRate, DefaultTenantRate), o.Canary),
		wakeups:    make(chan struct{}, 1),
		wakeProbes: make(chan struct{}, 1), wakeHeartbeats: make(chan struct{}, 1),
	}
	r.notifier.Every = notifyEvery
	r.backlog.Store(&backlogReading{})
	r.metrics = newMetrics(r)
	return r
}

// Wake makes this relay claim now, and makes the relays of other processes claim soon. Call Wake
// after the commit of a transaction that appended events, unless [Handover.Committed] has returned true.
// Wake never blocks. It is only a hint, because relays also poll. If r is nil, Wake does nothing.
func (r *Relay) Wake() {
	if r == nil {
		return
	}
	signal(r.wakeups)
	r.notifier.Publish("") // without keys, because a relay claims all new events
}

// onNotify wakes the claim loop when another relay has notified this one, and when the connection
// for notifications comes or goes, because notifications between two connections are lost.
func (r *Relay) onNotify(notify.Notification) { signal(r.wakeups) }

// Run relays events until ctx ends. For a second more it claims and publishes the events that were committed before
// (see lastClaims), unless they are due retries, or events that scans or turns would find, or the relay stays full. Publishes
// in flight have up to three seconds to finish. After that Run has up to 0.6 seconds to write the results and to hand back
// its leases. Then Run returns nil. Other events are left to another relay, or to that of the next process. So the caller
// ends ctx after its last transaction. Run keeps these limits even if the database hangs. A Relay can run only once.
//
// If a topic is not named in full, Run returns an error at once. The broker would refuse each event of its
// type by itself, and the relay would park them.
//
// Run is a pipeline. Some goroutines claim, some publish, and one settles, so the database and
// the broker are busy at the same time.
func (r *Relay) Run(ctx context.Context) error {
	defer r.metrics.unregister()
	if err := r.publisher.checkTopics(); err != nil {
		return err
	}
	flying, land := outlive(ctx, r.drainFor)
	defer land()
	last, over := outlive(ctx, min(r.lastFor, r.drainFor))
	defer over()
	closing, closed := outlive(ctx, r.drainFor+r.settleFor)
	defer closed()
	stopCalls := r.calls.Start(ctx)
	// The channels have room for everything that may be in flight, so no send ever waits.
	const most = maxEvents + maxCandidates
	toPublish, results := make(chan *leasedBatch, most), make(chan publishResult, most)
	r.inFlight.acceptHandovers(toPublish)
	defer context.AfterFunc(ctx, r.inFlight.refuseHandovers)()
	var publishing, settling, background sync.WaitGroup
	for range publishesInFlight {
		publishing.Go(func() {
			for b := range toPublish {
				answer := r.send(last, flying, b)
				r.inFlight.answer(b)
				results <- publishResult{b, answer}
			}
		})
	}
	settling.Go(func() { r.settleLoop(ctx, closing, results) })
	background.Go(func() { _ = r.notifier.Run(ctx, r.onNotify) }) // it ends with ctx, and never with an error
	background.Go(func() { r.heartbeatLoop(ctx, flying) })
	background.Go(func() { r.watchBacklog(ctx) })
	if r.options.Retention > 0 {
		background.Go(func() { r.purge(ctx) })
	}
	var claiming sync.WaitGroup
	claiming.Go(func() { r.scanLoop(ctx, flying, toPublish) })
	claiming.Go(func() { r.turnLoop(ctx, flying, toPublish) })
	claiming.Go(func() { r.probeLoop(ctx, flying, toPublish) })
	r.claimLoop(ctx, toPublish)
	r.lastClaims(last, flying, toPublish)
	claiming.Wait()
	r.inFlight.endHandovers()
	close(toPublish)
	publishing.Wait()
	close(results)
	settling.Wait()
	background.Wait()
	if left := r.inFlight.total(); left > 0 {
		r.log.WarnContext(closing, "relay has ended before it could hand back its leases, they run out by themselves", "events", left)
	}
	r.deregister(closing)
	stopCalls(closing)
	return nil
}

// outlive returns a context that ends d after ctx has ended.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		backoff.Sleep(longer, d, nil)
		end()
	})
	return longer, func() { stop(); end() }
}
