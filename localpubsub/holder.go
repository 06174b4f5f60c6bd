package localpubsub

import "time"

// A holder is one consumer of a subscription: a stream, or one unary pull. Its
// messages stay leased when it ends; the deadline brings them back.
type holder struct {
	streaming   bool
	closed      bool
	maxMessages int64 // outstanding; 0: no limit
	maxBytes    int64
	messages    int64
	bytes       int64
	deadline    time.Duration // of a lease
	keys        fifo[*keyQueue]
	work        chan struct{} // of size one: there may be messages to take
}

func newHolder(deadline time.Duration) *holder {
	return &holder{deadline: deadline, work: make(chan struct{}, 1)}
}

// room reports whether flow control permits more messages. The last message may
// exceed the limit of bytes; otherwise a large one would never be delivered.
func (h *holder) room() bool {
	return !h.closed && (h.maxMessages <= 0 || h.messages < h.maxMessages) && (h.maxBytes <= 0 || h.bytes < h.maxBytes)
}

func (h *holder) signal() {
	select {
	case h.work <- struct{}{}:
	default: // a signal is pending already
	}
}

// join adds h to the consumers.
func (s *subscription) join(h *holder) {
	s.holders = append(s.holders, h)
	s.touch()
}

// leave removes h. Keys that wait in its line go to other consumers as soon as
// none of their messages is outstanding.
func (s *subscription) leave(h *holder) {
	h.closed = true
	for i, other := range s.holders {
		if other == h {
			s.holders = append(s.holders[:i:i], s.holders[i+1:]...)
			break
		}
	}
	for h.keys.len() > 0 {
		q := h.keys.pop()
		if q.line == &h.keys {
			q.line = nil
			s.offer(q)
		}
	}
	if s.returnOnClose && h.streaming {
		s.handBack(h)
	}
	s.touch()
	s.wake() // it may have been the consumer that was notified of work
}

// handBack makes all messages that are leased to h ready at once, without
// counting an attempt.
func (s *subscription) handBack(h *holder) {
	var back []*entry
	for _, e := range s.delivered {
		if e.holder == h {
			back = append(back, e)
		}
	}
	for _, e := range back {
		if e.holder == h { // an earlier one of its key may have released it
			s.giveBack(e)
		}
	}
}

// wake notifies one consumer of work: of those with room, the one with the
// fewest outstanding messages.
func (s *subscription) wake() {
	var idlest *holder
	for _, h := range s.holders {
		if h.room() && (idlest == nil || h.messages < idlest.messages) {
			idlest = h
		}
	}
	if idlest != nil {
		idlest.signal()
	}
}
