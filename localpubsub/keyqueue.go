package localpubsub

// A keyQueue holds the messages of one ordering key in a subscription, oldest
// first.
//
//	first          cursor
//	  │               │
//	  ▼               ▼
//	[ A1 ] [ A2 ] [ A3 ] [ A4 ]
//	 out    acked  ready  ready
//
// The messages before the cursor have been sent. An acknowledged message stays in the queue until
// all messages before it are acknowledged. When a message is delivered again, all later messages of
// its key are delivered again, too, even acknowledged ones
// (https://cloud.google.com/pubsub/docs/ordering). To deliver them again, the queue only moves its
// cursor back.
//
// While messages of a key are outstanding, only the consumer that has them gets further messages of
// the key. A stream gets further messages without waiting for acknowledgements. After a unary pull,
// no consumer gets further messages until the messages of the pull are settled. So two consumers
// usually do not work on one key at the same time. The exception is a consumer that continues after
// its lease has ended.
type keyQueue struct {
	key         string
	first, last *entry
	cursor      *entry // the next message to send; nil if all were sent
	outstanding int    // number of leased messages
	consumer    *consumer
	line        *fifo[*keyQueue] // where the key waits for its turn; nil if it is in no line
}

func (q *keyQueue) push(e *entry) {
	e.queue = q
	e.kprev = q.last
	if q.last == nil {
		q.first = e
	} else {
		q.last.knext = e
	}
	q.last = e
	if q.cursor == nil {
		q.cursor = e
	}
}

func (q *keyQueue) remove(e *entry) {
	if q.cursor == e {
		q.cursor = e.knext
	}
	if e.kprev == nil {
		q.first = e.knext
	} else {
		e.kprev.knext = e.knext
	}
	if e.knext == nil {
		q.last = e.kprev
	} else {
		e.knext.kprev = e.kprev
	}
	e.kprev, e.knext = nil, nil
}

// deliverable reports whether the key has a message to send now.
func (q *keyQueue) deliverable() bool {
	return q.cursor != nil && q.cursor.state == ready
}

// waits reports whether the key waits in this line and has a message to send. If it has none, waits
// takes it out of the line.
func (q *keyQueue) waits(line *fifo[*keyQueue]) bool {
	if q.line != line {
		return false // the key left this line meanwhile
	}
	if !q.deliverable() {
		q.line = nil
		return false
	}
	return true
}

// rewind moves the cursor back to e, and ends the leases of the messages after e. An acknowledgement of
// an earlier delivery of one of these messages does not count any more. So all entries of the key in
// s.delivered are leased, except that the entry at the cursor may be without a lease.
func (s *subscription) rewind(e *entry) {
	q := e.queue
	for later := e.knext; later != q.cursor; later = later.knext {
		s.release(later)
		delete(s.delivered, later.id)
		later.state = ready
	}
	if q.cursor != nil {
		delete(s.delivered, q.cursor.id) // delivered has it if it was nacked or past its deadline
	}
	q.cursor = e
}

// trim drops the acknowledged messages at the head of the key.
func (s *subscription) trim(q *keyQueue) {
	for e := q.first; e != nil && e.state == acked; e = q.first {
		q.remove(e)
		s.retire(e)
	}
	if q.first == nil {
		delete(s.keys, q.key)
	}
}

// offer puts the key in a line if the key has a message to send. If the key has a consumer, this is
// the consumer's line. If not, it is the common line.
func (s *subscription) offer(q *keyQueue) {
	if q.line != nil || !q.deliverable() {
		return
	}
	switch {
	case q.consumer == nil:
		s.enqueue(q, &s.readyKeys)
		s.wake()
	case !q.consumer.closed: // a unary pull is closed after its batch
		s.enqueue(q, &q.consumer.keys)
		q.consumer.signal()
	}
}

func (s *subscription) enqueue(q *keyQueue, line *fifo[*keyQueue]) {
	q.line = line
	line.push(q)
}

// nextOfKeys returns the next message of the first deliverable key in line, or nil. If the key has
// more messages to send, the key then goes to the end of c's line.
func (s *subscription) nextOfKeys(line *fifo[*keyQueue], c *consumer) *entry {
	for line.len() > 0 {
		s.server.faults.reorder(line.len(), line.promote)
		q := line.pop()
		if !q.waits(line) {
			continue
		}
		q.line = nil
		e := q.cursor
		q.cursor = e.knext
		if q.deliverable() {
			s.enqueue(q, &c.keys)
		}
		return e
	}
	return nil
}
