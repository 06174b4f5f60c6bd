package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/hook"
)

const (
	// maxBatch is the most messages that share a transaction. From a thousand messages on, round
	// trips and commit are a small part of the cost.
	maxBatch = 1000
	// maxBytes is the default of Options.Bytes, the bound of the memory of the messages in hand.
	maxBytes = 64 << 20
	// maxMessages is the greatest number of messages in hand. It also bounds the throughput to
	// maxMessages per 100 ms, because the client sends acks in bundles every 100 ms.
	maxMessages = 10_000
	// maxExtension is how long the client keeps a lease. That is longer than most outages. If a
	// lease expires, the broker delivers the message again, which does no harm.
	maxExtension = 24 * time.Hour
	// leaseTime is the longest duration of a lease. The client renews a lease before its end. The messages
	// of a killed process come again when their leases are over. Without leaseTime a message on its way to
	// the client has a lease of 60 seconds. For a message that has reached the client, the client then
	// takes the 99th percentile of all times to an ack since it began to pull. If an outage holds up more than
	// a hundredth of the messages, this percentile is the length of the outage from then on, up to ten minutes.
	// On an exactly-once subscription the client takes leases of at least 60 seconds in any case.
	leaseTime = 30 * time.Second

	// batchTimeout bounds one transaction. It may be longer than an ack deadline, because the
	// client extends the deadline.
	batchTimeout = 30 * time.Second
	// leaveTime bounds the work of Run after its context has ended, without the calls of hooks, which hookTime bounds. A
	// process has 10 seconds to end, and its server may take 5.5 of them. Within leaveTime the running transaction has
	// drainTime. The streams have the last closeTime of leaveTime, in which they send the nacks. So all statements end
	// before that part begins.
	leaveTime = 3100 * time.Millisecond
	drainTime = 1800 * time.Millisecond
	closeTime = time.Second
	// hookTime is how long the hooks' calls may take after everything else has ended.
	hookTime = 500 * time.Millisecond
	// pullWorks is how long a stream must last to count as working. A stream that the broker
	// refuses ends earlier, after a round trip.
	pullWorks = 5 * time.Second
	// heartbeatEvery is how often an idle consumer shows that it is alive.
	heartbeatEvery = 10 * time.Second
	// putOffLines is a number of log lines about events that were put off, or about gaps. So many lines are at
	// WARN at once, and then one line a second. The rest are at DEBUG.
	putOffLines = 10
)

// onTheWire returns how many bytes of messages the client may request and keep in waiting
// callbacks. bytes is the size of the budget. The result is half of it, because the budget counts
// the data of each message twice.
func onTheWire(bytes int64) int64 { return max(1, bytes/2) }

// Receive is a function that passes messages to deliver until ctx ends. It returns when each of
// these messages is acked or nacked. The method Receive of a pubsub.Subscriber is such a function.
type Receive func(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error

// Consumer applies the events of one subscription. Any number of consumers may share a
// subscription.
type Consumer struct {
	store      store
	subscriber *pubsub.Subscriber
	admin      *vkit.SubscriptionAdminClient
	dead       deadLetters
	handler    guarded
	log        *slog.Logger
	heartbeat  func()
	metrics    *metrics
	options    Options
	calls      *hook.Calls

	budget   *budget
	incoming chan *delivery
	waiting  turns
	blocked  *blockedAggregates
	acks     chan pendingAck
	// uncleanStartUntil is the time until which each event that comes may be in a crash loop, if the broker
	// does not count deliveries. It is set by an unclean start (see "Crash loops" in the package doc), and
	// is zero after a clean start.
	uncleanStartUntil time.Time
	stalls            stallDetector
	slow              streak
	unknown           *unknowns
	repairs           *recentRepairs
	// putOffLines limits the log lines at WARN about events that were put off. gapLines and oldGapLines limit those
	// about failed repairs: see repairFailed.
	putOffLines, gapLines, oldGapLines *rate.Limiter
	// filter is the subscription's filter at the last call of lookAtTopic that could read it.
	filter string
}

// NewConsumer returns a consumer of a subscription in client's project. subscription is its id, without the
// project. Dead letters go to the topic `<subscription>.dlq`. The table inbox is found through db's
// search_path. The consumer calls heartbeat at least every ten seconds while it is alive, even if the
// broker is unavailable, and at least every minute while the database or the handler hangs. No argument may
// be nil.
func NewConsumer(
	db *pgxpool.Pool, client *pubsub.Client, subscription string, h Handler, log *slog.Logger, heartbeat func(), opts Options,
) *Consumer {
	opts = opts.within()
	limit := load{messages: maxMessages, bytes: opts.Bytes}
	sub := client.Subscriber(subscription)
	sub.ReceiveSettings.MaxOutstandingBytes = int(onTheWire(limit.bytes))
	sub.ReceiveSettings.MaxOutstandingMessages = int(limit.messages)
	sub.ReceiveSettings.MaxExtension = maxExtension
	sub.ReceiveSettings.MaxDurationPerAckExtension = leaseTime
	c := &Consumer{
		store:      store{db: db, consumer: subscription, instance: uuid.New()},
		subscriber: sub,
		admin:      client.SubscriptionAdminClient,
		dead: deadLetters{
			client: client.TopicAdminClient,
			topic:  "projects/" + client.Project() + "/topics/" + subscription + ".dlq",
		},
		handler:   guarded{h},
		log:       log.With("component", "consumer", "subscription", subscription),
		heartbeat: heartbeat,
		options:   opts,
		calls:     hook.New(log.With("component", "consumer", "subscription", subscription), "OnDeadLetter", "OnDiverged"),
		budget:    &budget{limit: limit},
		// The channel is as wide as the budget, so that callbacks wait for the budget alone.
		incoming: make(chan *delivery, maxMessages),
		waiting:  turns{lanes: map[string]*lane{}},
		blocked:  newBlockedAggregates(),
		acks:     make(chan pendingAck, maxMessages),
		unknown:  newUnknowns(),
		repairs:  newRecentRepairs(),

		putOffLines: rate.NewLimiter(1, putOffLines),
		gapLines:    rate.NewLimiter(1, putOffLines),
		oldGapLines: rate.NewLimiter(1, putOffLines),
	}
	c.metrics = newMetrics(subscription, c.budget, c.blocked, c.isAway)
	return c
}

// Run consumes until ctx ends. Then it finishes the running transaction, gives all other messages
// back to the broker, and returns nil. It returns an error if another consumer of the
// subscription already runs with the same [Streams], if the client's connection lacks the option of
// these Streams, or if the subscription is not named by its id. A Consumer can run only once.
func (c *Consumer) Run(ctx context.Context) error {
	if strings.Contains(c.store.consumer, "/") { // its dead letters would go to a topic of another name
		return fmt.Errorf("subscription %q: want its id, without the project", c.store.consumer)
	}
	if err := c.options.Streams.check(c.admin); err != nil {
		return err
	}
	leave, err := c.options.Streams.enter(c.subscriber.String(), c.budget)
	if err != nil {
		return err
	}
	defer leave()
	return c.RunFrom(ctx, c.pull) // the Receive of the client; with Streams it reads each stream to its end
}

// RunFrom is Run with the messages of receive, such as a test's messages from memory.
func (c *Consumer) RunFrom(ctx context.Context, receive Receive) error {
	defer c.metrics.unregister()
	leaving, cancel := after(ctx, leaveTime)
	defer cancel()
	stopCalls := c.calls.Start(ctx)
	defer func() {
		until, cancel := context.WithTimeout(context.WithoutCancel(ctx), hookTime)
		defer cancel()
		stopCalls(until)
	}()
	received := make(chan struct{})
	open, ended := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(received)
		defer ended()
		c.receive(ctx, receive)
	}()
	var background sync.WaitGroup
	background.Go(func() { c.maintain(ctx) })
	background.Go(func() { c.stalls.run(open) })
	background.Go(func() { c.watchAcks(open) })
	c.work(ctx)
	// receive returns when every message that it delivered is acked or nacked.
	for {
		select {
		case d := <-c.incoming:
			c.giveBack(ctx, d)
		case <-received:
			background.Wait()
			return nil
		case <-leaving.Done():
			c.log.WarnContext(ctx, "stream did not close in time, its messages come back when their leases end")
			return nil
		}
	}
}

// receive keeps a stream open. The client itself reopens a broken stream. If the subscription is
// missing or access is refused, the client returns an error, and receive tries again until an
// operator has repaired the cause.
func (c *Consumer) receive(ctx context.Context, receive Receive) {
	for failures := 0; ; {
		opened := time.Now()
		works := time.AfterFunc(pullWorks, func() { c.metrics.pullFailing(0) })
		err := receive(ctx, func(_ context.Context, m *pubsub.Message) {
			// A message is not decoded before there is room for it.
			if !c.budget.acquire(ctx, loadOf(m)) {
				c.nack(ctx, m)
				return
			}
			d := c.handler.newDelivery(m)
			if d.attempt() > 1 {
				c.metrics.redelivered(ctx)
			}
			// Return at once. The client hands out the next message of a key only after the
			// callback has returned. If the callback waited for the commit, every batch would have
			// one message per key.
			select {
			case c.incoming <- d:
			case <-ctx.Done():
				c.giveBack(ctx, d)
			}
		})
		works.Stop()
		if ctx.Err() != nil {
			return
		}
		failures++
		if time.Since(opened) > c.options.OutageBackoff.Cap {
			failures = 1 // the first failure since the stream worked
		}
		c.metrics.pullFailing(failures)
		pause := c.options.OutageBackoff.Delay(failures)
		c.log.ErrorContext(ctx, "subscription cannot be pulled", "error", err, "retry_in_ms", pause.Milliseconds())
		backoff.Sleep(ctx, pause, nil)
	}
}

// work applies messages that arrive or whose aggregate is unblocked, until ctx ends.
func (c *Consumer) work(ctx context.Context) {
	alive := time.NewTicker(heartbeatEvery)
	defer alive.Stop()
	var unfinished []*delivery
	writing, cancel := after(ctx, leaveTime-closeTime)
	defer cancel()
	defer func() {
		c.shutDown(writing, slices.Concat(unfinished, c.blocked.all(), c.waiting.take(c.waiting.count)))
	}()
	always := make(chan struct{})
	close(always)
	c.register(ctx)
	for ctx.Err() == nil {
		c.heartbeat()
		var batch []*delivery
		var more chan struct{}
		if c.waiting.count > 0 {
			more = always
		}
		select {
		case <-ctx.Done():
			return
		case <-alive.C:
			continue
		case key := <-c.blocked.released:
			batch = c.waiting.first(mergeDuplicates(c.blocked.unblock(key)), time.Now())
		case d := <-c.incoming:
			c.waiting.push(d, time.Now())
			batch = c.gather()
		case <-more:
			batch = c.gather()
		}
		unfinished = append(unfinished, c.process(ctx, mergeDuplicates(batch))...)
	}
}

// gather adds all messages that have arrived to the waiting messages, and takes the next batch. It
// does not wait for more messages. So a lone message is applied at once, and under load the next
// batch fills up while this one commits.
func (c *Consumer) gather() []*delivery {
	now := time.Now()
	for {
		select {
		case d := <-c.incoming:
			c.waiting.push(d, now)
		default:
			return c.waiting.batch(now)
		}
	}
}
