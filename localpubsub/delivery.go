package localpubsub

import (
	"cmp"
	"slices"
	"time"
)

// add appends a new message. The caller wakes the consumers.
func (s *subscription) add(m *message) {
	e := &entry{message: m, timer: -1}
	m.keep()
	s.log.push(e)
	if !s.ordered || m.key == "" {
		s.ready.push(e)
		return
	}
	q := s.keys[m.key]
	if q == nil {
		q = &keyQueue{key: m.key}
		s.keys[m.key] = q
	}
	q.push(e)
	s.offer(q)
}

// take leases messages to c and returns them. It takes at most limit messages and about maxResponse
// bytes. It stops when c's flow control has no more room.
func (s *subscription) take(c *consumer, limit int) []*entry {
	var batch []*entry
	var size int64
	now := s.server.now()
	for len(batch) < limit && size < maxResponse && c.room() {
		e := s.nextFor(c)
		if e == nil {
			break
		}
		s.lease(e, c, now)
		size += e.size()
		batch = append(batch, e)
	}
	if len(batch) > 0 {
		c.othersFirst = !c.othersFirst
	}
	s.schedule()
	return batch
}

// nextFor returns the next message for c, or nil. Every second batch prefers messages of the keys that c
// already holds. The other batches prefer messages that wait for any consumer. Otherwise a key that
// always has another message would keep these waiting.
func (s *subscription) nextFor(c *consumer) *entry {
	if c.othersFirst {
		if e := s.nextWaiting(c); e != nil {
			return e
		}
	}
	if e := s.nextOfKeys(&c.keys, c); e != nil {
		return e
	}
	return s.nextWaiting(c)
}

// nextWaiting returns the next message for c that waits for any consumer, or nil. It alternates
// between messages with a key and messages without a key.
func (s *subscription) nextWaiting(c *consumer) *entry {
	s.turn++
	if s.turn%2 == 0 {
		if e := s.nextOfKeys(&s.readyKeys, c); e != nil {
			return e
		}
		return s.nextUnkeyed()
	}
	if e := s.nextUnkeyed(); e != nil {
		return e
	}
	return s.nextOfKeys(&s.readyKeys, c)
}

func (s *subscription) nextUnkeyed() *entry {
	for s.ready.len() > 0 {
		s.server.faults.reorder(s.ready.len(), s.ready.promote)
		if e := s.ready.pop(); e.state == ready {
			return e // an entry in another state was acknowledged late, or is past its retention
		}
	}
	return nil
}

func (s *subscription) hasWork(c *consumer) bool {
	return s.ready.len() > 0 || s.readyKeys.len() > 0 || c.keys.len() > 0
}

func (s *subscription) lease(e *entry, c *consumer, now time.Time) {
	s.serial++
	e.serial, e.state, e.consumer = s.serial, leased, c
	c.messages++
	c.bytes += int64(len(e.raw))
	if e.queue != nil {
		e.queue.outstanding++
		e.queue.consumer = c
	}
	s.delivered[e.id] = e
	s.timers.set(e, now.Add(c.deadline).UnixNano())
}

// release ends the entry's lease, if there is one. This gives room to the flow control of the
// consumer. If no other message of the key is leased, the key has no consumer afterwards. The
// caller sets the next state of the entry.
func (s *subscription) release(e *entry) {
	s.timers.clear(e)
	c := e.consumer
	if c == nil {
		return
	}
	e.consumer = nil
	c.messages--
	c.bytes -= int64(len(e.raw))
	if q := e.queue; q != nil {
		q.outstanding--
		if q.outstanding == 0 {
			q.consumer = nil
			if q.line == &c.keys {
				q.line = nil
			}
		}
	}
	if s.hasWork(c) {
		c.signal()
	}
}

// settle acknowledges the entry. The caller has checked that the
// acknowledgement counts.
func (s *subscription) settle(e *entry) {
	s.release(e)
	delete(s.delivered, e.id)
	e.state = acked
	if e.queue == nil {
		s.retire(e)
		return
	}
	q := e.queue
	if q.cursor == e {
		q.cursor = e.knext
	}
	s.trim(q)
	s.offer(q)
}

// retire ends the delivery of the entry. The entry stays in the log if a seek
// may bring it back.
func (s *subscription) retire(e *entry) {
	e.queue = nil
	if s.retainAcked {
		return
	}
	s.discard(e)
}

// fail handles a nack or a missed deadline of a leased entry. After the last allowed failure, the
// entry goes to the dead letter topic. After an earlier failure, the entry waits for its backoff
// and is then delivered again. If the entry has a key, all messages of the key that were sent after
// the entry are also delivered again.
func (s *subscription) fail(e *entry, now time.Time) {
	e.failures++
	if s.deadLetter(e) {
		return
	}
	wait := s.backoff(e.failures)
	if wait == 0 {
		s.giveBack(e)
		return
	}
	s.release(e)
	if e.queue != nil {
		s.rewind(e)
	}
	e.state = waiting
	s.timers.set(e, now.Add(wait).UnixNano())
}

// giveBack makes a leased entry ready again without counting a failure.
func (s *subscription) giveBack(e *entry) {
	s.release(e)
	if e.queue != nil {
		s.rewind(e)
	}
	s.resume(e)
}

// resume makes an entry ready. The entry must not be leased.
func (s *subscription) resume(e *entry) {
	e.state = ready
	if e.queue != nil {
		s.offer(e.queue)
		return
	}
	s.ready.push(e)
	s.wake()
}

// backoff returns the wait before the next delivery after the given number of failures. The wait
// doubles with each failure, from the policy's minimum to its maximum. Without a policy there is no
// wait, so a message is delivered again at once
// (https://cloud.google.com/pubsub/docs/handling-failures).
func (s *subscription) backoff(failures int32) time.Duration {
	if s.maxBackoff == 0 {
		return 0
	}
	wait := s.minBackoff
	for range failures - 1 {
		if wait *= 2; wait >= s.maxBackoff {
			return s.maxBackoff
		}
	}
	return min(wait, s.maxBackoff)
}

// tick handles everything that is due by the clock. This includes ended leases, ended backoffs,
// messages past their retention, and the expiry of an unused subscription.
func (s *subscription) tick() {
	s.lock()
	defer s.unlock()
	now := s.server.now()
	s.expireLeases(now)
	s.forgetOld(now)
	s.expireUnused(now)
	s.schedule()
}

// expireLeases ends the leases and backoffs that are due. On a busy machine the alarm may ring
// late. So a call whose result depends on leases runs expireLeases first.
func (s *subscription) expireLeases(now time.Time) {
	var late []*entry
	for e := s.timers.due(now.UnixNano()); e != nil; e = s.timers.due(now.UnixNano()) {
		if e.state == leased {
			late = append(late, e)
			continue
		}
		s.resume(e)
	}
	// A missed deadline also returns the later leased messages of its key, and counts no failure of
	// those. Each missed deadline must count. So that of the last message comes first.
	slices.SortFunc(late, func(a, b *entry) int { return cmp.Compare(b.id, a.id) })
	for _, e := range late {
		s.fail(e, now)
	}
}
