package localpubsub

import (
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/localpubsub/internal/filter"
)

// A subscription keeps the messages that its consumers have not acknowledged, and delivers them.
// The lock mu guards the fields after it.
type subscription struct {
	server *Server
	name   string
	number uint64 // distinguishes its ack ids from the ack ids of other subscriptions

	forwarding sync.Mutex // held while dead letters are published; taken before any other lock

	mu      sync.Mutex
	later   []func()               // functions to run after the lock is released
	dead    []deadLetter           // to publish after the lock is released
	config  *pubsubpb.Subscription // replaced as a whole, never changed
	topic   *topic                 // nil after the topic was deleted
	filter  *filter.Filter
	gone    error // the error that consumers get after a delete or detach
	touched time.Time
	settings

	topicRetention time.Duration // of the topic; applies if it is longer than retention

	log       entryList // all messages that are kept
	ready     fifo[*entry]
	readyKeys fifo[*keyQueue]
	keys      map[string]*keyQueue
	delivered map[uint64]*entry // by message id: the entries that an acknowledgement can settle
	timers    timers
	serial    uint64 // of the last delivery
	turn      int    // alternates between messages with and without key
	consumers []*consumer
	alarm     *alarm
	rings     time.Time // when the alarm rings; zero if it is not set
}

// settings holds the configuration of the subscription, in the types that delivery uses.
type settings struct {
	ordered       bool
	exactlyOnce   bool
	retainAcked   bool
	ackDeadline   time.Duration
	retention     time.Duration
	minBackoff    time.Duration
	maxBackoff    time.Duration // 0 without a retry policy
	maxAttempts   int32         // 0 without a dead letter policy
	ttl           time.Duration // 0 if the subscription never expires
	returnOnClose bool
}

func newSubscription(server *Server, topic *topic, config *pubsubpb.Subscription, f *filter.Filter) *subscription {
	s := &subscription{
		server: server, name: config.GetName(), number: server.nextNumber(),
		topic: topic, filter: f, touched: server.now(),
		keys: make(map[string]*keyQueue), delivered: make(map[uint64]*entry),
	}
	s.alarm = server.clock.newAlarm(s.tick)
	s.configure(config)
	s.schedule()
	return s
}

// configure applies a checked configuration.
func (s *subscription) configure(config *pubsubpb.Subscription) {
	s.config = config
	s.settings = settings{
		ordered:       config.GetEnableMessageOrdering(),
		exactlyOnce:   config.GetEnableExactlyOnceDelivery(),
		retainAcked:   config.GetRetainAckedMessages(),
		ackDeadline:   time.Duration(config.GetAckDeadlineSeconds()) * time.Second,
		retention:     config.GetMessageRetentionDuration().AsDuration(),
		minBackoff:    config.GetRetryPolicy().GetMinimumBackoff().AsDuration(),
		maxBackoff:    config.GetRetryPolicy().GetMaximumBackoff().AsDuration(),
		maxAttempts:   config.GetDeadLetterPolicy().GetMaxDeliveryAttempts(),
		ttl:           config.GetExpirationPolicy().GetTtl().AsDuration(),
		returnOnClose: s.server.options.ReturnOnClose,
	}
}

func (s *subscription) lock() { s.mu.Lock() }

// unlock releases the lock, and then runs the functions that after has added. These functions take
// other locks, so they must not run while this lock is held.
func (s *subscription) unlock() {
	later := s.later
	s.later = nil
	s.mu.Unlock()
	for _, do := range later {
		do()
	}
}

func (s *subscription) after(do func()) { s.later = append(s.later, do) }

// unacked returns the number of kept messages that are not acknowledged, including leased messages.
func (s *subscription) unacked() (n int) {
	s.lock()
	defer s.unlock()
	for e := s.log.first; e != nil; e = e.next {
		if e.state != acked {
			n++
		}
	}
	return n
}

// touch records a use of the subscription.
func (s *subscription) touch() { s.touched = s.server.now() }

// describe returns the configuration as Get and List return it.
func (s *subscription) describe() *pubsubpb.Subscription {
	s.lock()
	defer s.unlock()
	described := proto.CloneOf(s.config)
	described.State = pubsubpb.Subscription_ACTIVE
	described.PushConfig = &pubsubpb.PushConfig{} // an empty one means pull, in the service's answers, too
	described.Detached = s.gone != nil
	if s.topic == nil {
		described.Topic = deletedTopic
	} else if s.topicRetention > 0 {
		described.TopicMessageRetentionDuration = durationpb.New(s.topicRetention)
	}
	return described
}

// schedule sets the alarm to the earliest of three times. These are the next end of a lease or
// backoff, the end of the oldest message's retention, and the expiry of the subscription. schedule
// never moves the alarm to a later time, so an extended lease costs nothing here. So the alarm may
// ring too early.
func (s *subscription) schedule() {
	var at time.Time
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if len(s.timers) > 0 {
		sooner(time.Unix(0, s.timers[0].deadline))
	}
	if s.log.first != nil {
		sooner(time.Unix(0, s.log.first.at).Add(s.keptFor()))
	}
	if s.ttl > 0 {
		sooner(s.touched.Add(s.ttl))
	}
	if s.gone != nil || at.IsZero() || (!s.rings.IsZero() && !at.Before(s.rings)) {
		return
	}
	s.rings = at
	s.alarm.set(at)
}

// retain applies the present retention at once. It may be shorter than the former retention, and a still
// clock would ring the alarm only at its next step. If acknowledged messages are no longer kept, retain
// drops them.
func (s *subscription) retain() {
	s.forgetOld(s.server.now())
	for e := s.log.first; e != nil && !s.retainAcked; {
		next := e.next
		if e.state == acked && e.queue == nil { // one in a queue may have to be delivered again
			s.discard(e)
		}
		e = next
	}
	s.schedule()
}

// forgetOld drops messages that are past their retention, whether they are acknowledged or not
// (https://cloud.google.com/pubsub/docs/subscription-properties).
func (s *subscription) forgetOld(now time.Time) {
	s.rings = time.Time{}
	limit := now.Add(-s.keptFor()).UnixNano()
	for e := s.log.first; e != nil && e.at <= limit; e = s.log.first {
		s.forget(e)
	}
	s.skim()
}

// skim drops the entries and keys at the heads of the lines that have nothing to deliver. Consumers
// do so, too, but a subscription may have none.
func (s *subscription) skim() {
	for s.ready.len() > 0 && s.ready.at(0).state != ready {
		s.ready.pop()
	}
	for s.readyKeys.len() > 0 && !s.readyKeys.at(0).waits(&s.readyKeys) {
		s.readyKeys.pop()
	}
}

func (s *subscription) keptFor() time.Duration { return max(s.retention, s.topicRetention) }

// forget removes an entry in any state.
func (s *subscription) forget(e *entry) {
	s.release(e)
	delete(s.delivered, e.id)
	e.state = acked
	if q := e.queue; q != nil {
		q.remove(e)
		e.queue = nil
		s.trim(q)
		s.offer(q)
	}
	s.discard(e)
}

// discard removes an entry that is in no key queue from the log. The entry may still wait in a line,
// behind entries that are delivered. So discard takes the message out of the entry, and the size of the
// message no longer counts.
func (s *subscription) discard(e *entry) {
	s.log.remove(e)
	e.drop()
	e.message = nil
}

// expireUnused deletes the subscription if it was not used for the duration ttl. An open stream
// counts as a use.
func (s *subscription) expireUnused(now time.Time) {
	if len(s.consumers) > 0 {
		s.touched = now
	}
	if s.ttl > 0 && s.gone == nil && !now.Before(s.touched.Add(s.ttl)) {
		s.after(func() { _ = s.server.deleteSubscription(s) }) // an error means that another call just deleted it
	}
}

// end drops all messages and wakes the consumers. The consumers then return the error why.
func (s *subscription) end(why error) {
	s.gone = why
	s.alarm.stop()
	for s.log.first != nil {
		s.forget(s.log.first)
	}
	s.clear()
	for _, c := range s.consumers {
		c.signal()
	}
}
