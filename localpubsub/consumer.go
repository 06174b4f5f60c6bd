package localpubsub

import "time"

// A consumer takes messages of a subscription. A consumer is a stream or one unary pull. After a
// consumer has ended, its messages stay leased until their deadline.
type consumer struct {
	streaming   bool
	closed      bool
	maxMessages int64 // limit on outstanding messages; 0 means none
	maxBytes    int64
	messages    int64
	bytes       int64         // of the messages in the encoding that the client gets
	deadline    time.Duration // length of a lease
	keys        fifo[*keyQueue]
	sending     bool          // whether it sends something, and has not yet asked for the next batch
	othersFirst bool          // whether the next batch prefers messages that wait for any consumer
	work        chan struct{} // of size one; a signal means that there may be messages to take
}

func newConsumer(deadline time.Duration) *consumer {
	return &consumer{deadline: deadline, work: make(chan struct{}, 1)}
}

// room reports whether flow control permits another message. The last permitted message may exceed
// the limit of bytes. Otherwise a message that is larger than the limit would never be delivered.
func (c *consumer) room() bool {
	return !c.closed && (c.maxMessages <= 0 || c.messages < c.maxMessages) && (c.maxBytes <= 0 || c.bytes < c.maxBytes)
}

func (c *consumer) signal() {
	select {
	case c.work <- struct{}{}:
	default: // a signal is pending already
	}
}

// join adds c to the consumers.
func (s *subscription) join(c *consumer) {
	s.consumers = append(s.consumers, c)
	s.touch()
}

// leave removes c from the consumers. Each key in c's line has outstanding messages, and stays there
// until none of them is outstanding. Then the key goes to other consumers.
func (s *subscription) leave(c *consumer) {
	c.closed = true
	for i, other := range s.consumers {
		if other == c {
			s.consumers = append(s.consumers[:i:i], s.consumers[i+1:]...)
			break
		}
	}
	if s.returnOnClose && c.streaming {
		s.returnMessages(c)
	}
	s.touch()
	s.wake() // c may have been the consumer that was notified of work
}

// returnMessages makes all messages that are leased to c ready at once, without
// counting an attempt.
func (s *subscription) returnMessages(c *consumer) {
	var back []*entry
	for _, e := range s.delivered {
		if e.consumer == c {
			back = append(back, e)
		}
	}
	for _, e := range back {
		if e.consumer == c { // false if giveBack of an earlier message of the key has released e
			s.giveBack(e)
		}
	}
}

// wakeIfWork wakes a consumer if messages wait for any consumer.
func (s *subscription) wakeIfWork() {
	if s.ready.len() > 0 || s.readyKeys.len() > 0 {
		s.wake()
	}
}

// wake notifies one consumer of work. It chooses the consumer with the fewest outstanding messages among
// the consumers that have room. It leaves out the consumers that send. Such a consumer looks for work by
// itself when it has sent, and it sends for ever if its client does not read.
func (s *subscription) wake() {
	var leastLoaded *consumer
	for _, c := range s.consumers {
		if c.room() && !c.sending && (leastLoaded == nil || c.messages < leastLoaded.messages) {
			leastLoaded = c
		}
	}
	if leastLoaded != nil {
		leastLoaded.signal()
	}
}
