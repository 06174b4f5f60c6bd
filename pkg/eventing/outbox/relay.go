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

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/notify"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// renewEvery leaves two more tries before a lease runs out.
	renewEvery = queue.LeaseTime / 3
	// publishTimeout bounds one publish request. A publish is never started
	// unless the lease outlasts it.
	publishTimeout = 8 * time.Second
	// drainTime is what publishes and claims in flight get after Run is cancelled, and
	// settleTime what it then takes at most to write down what became of them: the
	// server in front leaves a process 4 of its 10 seconds.
	drainTime  = 3 * time.Second
	settleTime = 800 * time.Millisecond

	// A claim takes at most this much: enough that its round trip is a small part
	// of the work, little enough that the first of it is soon on its way.
	claimEvents = 2000
	claimBytes  = 8 << 20
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
	idle = backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}
	// outage is the pause after a failed database or an unreachable broker.
	outage = backoff.Policy{Base: 200 * time.Millisecond, Cap: 5 * time.Second}
	// refused is the pause of an aggregate whose event was refused.
	refused = backoff.Policy{Base: time.Second, Cap: time.Minute}
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
	bell     *notify.Bell
	options  Options
	log      *slog.Logger
	beat     func()
	metrics  *metrics
	// token is this relay's name on its leases.
	token string

	flight  *flight
	agenda  *agenda
	joining joining
	reach   *reach
	// woken and tell are told of each Wake: the one makes this relay look, the
	// other the ones of other processes.
	woken, tell chan struct{}
	// out is told when a topic that is out may be due for a probe.
	out chan struct{}
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
		bell:     notify.New(db, o.ListenURL, "outbox", log),
		options:  o,
		log:      log.With("component", "relay"),
		beat:     beat,
		token:    uuid.NewString(),
		flight:   newFlight(),
		agenda:   newAgenda(),
		reach:    &reach{per: minPerAggregate},
		woken:    make(chan struct{}, 1),
		tell:     make(chan struct{}, 1),
		out:      make(chan struct{}, 1),
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
// three seconds, hands back what it has leased, and returns nil, no later than 0.8
// seconds after that, whatever the database does. A relay runs once.
//
// It is a pipeline: one goroutine claims, some publish, one settles, so that the
// database and the broker are busy at the same time.
func (r *Relay) Run(ctx context.Context) error {
	defer r.metrics.unregister()
	flying, land := outlive(ctx, drainTime)
	defer land()
	closing, closed := outlive(ctx, drainTime+settleTime)
	defer closed()
	// Wide enough for all that the flight may hold: nobody ever waits to send.
	const most = maxEvents + maxCandidates
	claimed, landed := make(chan *hold, most), make(chan landing, most)
	var publishing, settling, beside sync.WaitGroup
	for range publishesInFlight {
		publishing.Go(func() {
			for h := range claimed {
				landed <- landing{h, r.send(ctx, flying, h)}
			}
		})
	}
	settling.Go(func() { r.settling(ctx, closing, landed) })
	beside.Go(func() { r.notify(ctx) })
	beside.Go(func() { _ = r.bell.Run(ctx, r.heard) }) // it ends with ctx, and never with an error
	beside.Go(func() { r.beating(ctx) })
	beside.Go(func() { r.watching(ctx) })
	if r.options.Retention > 0 {
		beside.Go(func() { r.purge(ctx) })
	}
	var claiming sync.WaitGroup
	claiming.Go(func() { r.scanning(ctx, flying, claimed) })
	claiming.Go(func() { r.probing(ctx, flying, claimed) })
	r.claiming(ctx, claimed)
	claiming.Wait()
	close(claimed)
	publishing.Wait()
	close(landed)
	settling.Wait()
	beside.Wait()
	r.leave(closing)
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

// send publishes a hold and tells its topic's circuit. No request is begun after
// ctx has ended; flying is the context of those in flight.
func (r *Relay) send(ctx, flying context.Context, h *hold) report {
	c := r.circuits[h.run[0].AggregateType]
	rep := r.publish.run(flying, h.run, func() bool {
		return ctx.Err() == nil && (c == nil || c.admits(h.probe)) && h.outlasts(publishTimeout)
	})
	if c != nil {
		r.judge(ctx, flying, c, h, &rep)
	}
	return rep
}

// judge tells a circuit what became of a hold. It makes an outage of a refusal that
// is the topic's fault.
func (r *Relay) judge(ctx, flying context.Context, c *circuit, h *hold, rep *report) {
	key := h.run[0].Key()
	if rep.published > 0 && c.succeeded(key) {
		r.log.InfoContext(ctx, "relay goes on", "topic", c.topic)
		r.agenda.resumed()
	}
	tripped := false
	switch {
	case rep.rejected:
		wasOpen := c.open()
		v := c.refusal(key, h.probe)
		rep.rejected, rep.wait, tripped = v.onEvent, v.wait, v.tripped
		if wasOpen && !c.open() {
			r.agenda.resumed()
		}
	case rep.err != nil && flying.Err() == nil:
		rep.wait, tripped = c.failed(rep.err, h.probe)
	case rep.published == 0 && h.probe != 0:
		c.later(h.probe, 0)
	}
	if tripped {
		cause, since := c.pause()
		r.log.WarnContext(ctx, "relay is held up, nothing is lost", "topic", c.topic, "cause", cause,
			"paused_since", since, "failures", c.failures(), "error", rep.err)
	}
	if c.open() {
		signal(r.out)
	}
}
