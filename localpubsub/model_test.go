package localpubsub

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A model is a subscription as Google's documentation describes it. It does not decide which message goes to
// which consumer. It decides which deliveries are permitted, and which must not be missing.
type model struct {
	config     searchConfig
	fates      []*fate
	snapshot   bool
	complaints []string
}

// A fate is the history of one message.
type fate struct {
	id       uint64
	key      string
	state    state
	sent     bool      // delivered, and not to be delivered again
	until    time.Time // end of the lease or backoff
	by       *consumer
	failures int32
	ackID    string // of the last delivery
	staleID  string // of the one before
	counts   bool   // whether an acknowledgement with ackID counts
	dead     []int32
	gone     bool // settled, and no longer kept
	captured bool // in the snapshot
}

func newModel(c searchConfig) *model { return &model{config: c} }

func (m *model) complainf(format string, args ...any) {
	m.complaints = append(m.complaints, fmt.Sprintf(format, args...))
}

func (m *model) published(id uint64, key string) {
	m.fates = append(m.fates, &fate{id: id, key: key, captured: m.snapshot})
}

// ordered reports whether the message is in the order of a key.
func (m *model) ordered(f *fate) bool { return m.config.ordered && f.key != "" }

// ofKey returns the kept messages of the same key, in order.
func (m *model) ofKey(f *fate) (all []*fate) {
	for _, other := range m.fates {
		if other.key == f.key && !other.gone {
			all = append(all, other)
		}
	}
	return all
}

// due reports whether the consumer may get the message now. Nil is a new consumer.
func (m *model) due(f *fate, c *consumer) bool {
	if f.gone || f.sent || f.state != ready {
		return false
	}
	if !m.ordered(f) {
		return true
	}
	for _, other := range m.ofKey(f) {
		if other.id < f.id && !other.sent {
			return false
		}
		if other.state == leased && (other.by != c || c.closed) {
			return false
		}
	}
	return true
}

func (m *model) complainDue(c *consumer) {
	for _, f := range m.fates {
		if m.due(f, c) && (c == nil || c.streaming) {
			m.complainf("message %d is not delivered", f.id)
		}
	}
}

func (m *model) deliveredAll(batch []delivery, c *consumer, now time.Time) {
	closed := c.closed
	c.closed = false // the batch was taken before
	defer func() { c.closed = closed }()
	for _, d := range batch {
		i := slices.IndexFunc(m.fates, func(f *fate) bool { return f.id == d.id.message })
		if i < 0 || !m.due(m.fates[i], c) {
			m.complainf("message %d is delivered", d.id.message)
			continue
		}
		f := m.fates[i]
		if want := uint64(f.failures) + 1; m.config.attempts > 0 && d.attempt != want || m.config.attempts == 0 && d.attempt != 0 {
			m.complainf("message %d has attempt %d after %d failures", f.id, d.attempt, f.failures)
		}
		f.state, f.sent, f.by, f.until = leased, true, c, now.Add(10*time.Second)
		f.staleID, f.ackID, f.counts = f.ackID, d.id.String(), true
	}
}

func (m *model) leasedBy(c *consumer) (n int64) {
	for _, f := range m.fates {
		if f.state == leased && f.by == c {
			n++
		}
	}
	return n
}

func (m *model) leasedIDs() (ids []string) {
	for _, f := range m.fates {
		if f.state == leased {
			ids = append(ids, f.ackID)
		}
	}
	return ids
}

func (m *model) acknowledged(f *fate, id string, failed failures) {
	want := ""
	switch {
	case id != f.ackID || !f.counts || m.config.exactlyOnce && f.state != leased:
		want = invalidAckID
	case m.config.exactlyOnce && m.ordered(f) && m.ofKey(f)[0] != f:
		want = unorderedAckID
	}
	m.wantReason(f, failed[id], want)
	if want != "" {
		return
	}
	f.state, f.sent, f.by, f.counts = acked, true, nil, false
	m.trim(f)
}

func (m *model) wantReason(f *fate, got, want string) {
	if !m.config.exactlyOnce {
		want = ""
	}
	if got != want {
		m.complainf("an answer about message %d fails with %q, want %q", f.id, got, want)
	}
}

// trim lets go the acknowledged messages that no other message of their key holds back.
func (m *model) trim(f *fate) {
	if !m.ordered(f) {
		f.gone = f.state == acked
		return
	}
	for _, other := range m.ofKey(f) {
		if other.state != acked {
			return
		}
		other.gone = true
	}
}

func (m *model) extended(f *fate, failed failures, until time.Time) {
	if !f.counts || f.state != leased {
		m.wantReason(f, failed[f.ackID], invalidAckID)
		return
	}
	m.wantReason(f, failed[f.ackID], "")
	f.until = until
}

func (m *model) nacked(f *fate, failed failures, now time.Time) {
	if !f.counts || f.state != leased {
		m.wantReason(f, failed[f.ackID], invalidAckID)
		return
	}
	m.wantReason(f, failed[f.ackID], "")
	m.fail(f, now)
}

func (m *model) nackedAll(failed failures, now time.Time) {
	if len(failed) > 0 {
		m.complainf("a nack of leased messages fails: %v", failed)
	}
	for _, f := range slices.Backward(m.fates) {
		if f.state == leased {
			m.fail(f, now)
		}
	}
}

// fail counts a failure. A message that has failed too often is a dead letter. Another is delivered again, and
// all later ones of its key after it.
func (m *model) fail(f *fate, now time.Time) {
	f.failures++
	if m.config.attempts > 0 && f.failures >= m.config.attempts {
		f.dead = append(f.dead, f.failures)
		f.state, f.sent, f.by, f.counts, f.gone = acked, true, nil, false, true
		f.failures = 0
		m.trim(f)
		return
	}
	m.again(f)
	if m.config.retry {
		f.state = waiting
		f.until = now.Add(min(20*time.Second, 5*time.Second<<(f.failures-1)))
	}
}

func (m *model) again(f *fate) {
	f.state, f.sent, f.by = ready, false, nil
	if !m.ordered(f) {
		return
	}
	for _, later := range m.ofKey(f) {
		if later.id <= f.id {
			continue
		}
		if later.state != waiting { // a backoff goes on
			later.state = ready
		}
		later.sent, later.by, later.counts = false, nil, false
	}
}

func (m *model) passed(now time.Time) {
	for _, f := range m.fates {
		if f.state == waiting && !f.until.After(now) {
			f.state = ready
		}
	}
	var late []*fate
	for _, f := range m.fates {
		if f.state == leased && !f.until.After(now) {
			late = append(late, f)
		}
	}
	for _, f := range slices.Backward(late) {
		m.fail(f, now)
	}
}

func (m *model) closed(c *consumer) {
	for _, f := range slices.Backward(m.fates) {
		if m.config.returned && f.state == leased && f.by == c {
			m.again(f)
		}
	}
}

func (m *model) captured() {
	m.snapshot = true
	for _, f := range m.fates {
		f.captured = f.state != acked && !f.gone
	}
}

// sought sets the messages to their state after a seek. restored reports whether the target of the seek has kept
// a message.
func (m *model) sought(restored, unacked func(*fate) bool) {
	for _, f := range m.fates {
		f.by, f.counts = nil, false
		kept := !f.gone || m.config.retain
		if !kept {
			f.failures = 0 // the subscription has forgotten the message
		}
		if (kept || restored(f)) && unacked(f) {
			f.state, f.sent, f.gone = ready, false, false
		} else {
			f.state, f.sent, f.gone = acked, true, true
		}
	}
}

func (m *model) deadCounts() (all []string) {
	for _, f := range m.fates {
		for _, n := range f.dead {
			all = append(all, strconv.Itoa(int(n)))
		}
	}
	slices.Sort(all)
	return all
}

func (m *model) complainUnsettled() {
	for _, f := range m.fates {
		if !f.gone {
			m.complainf("message %d is never settled", f.id)
		}
	}
}

func (m *model) describe(b *strings.Builder, now time.Time, nameOf func(*consumer) string) {
	for _, f := range m.fates {
		fmt.Fprint(b, " f", f.key, f.state, f.sent, nameOf(f.by), f.failures, f.ackID != "", f.staleID != "")
		fmt.Fprint(b, f.counts, f.dead, f.gone, f.captured)
		if f.state == leased || f.state == waiting {
			fmt.Fprint(b, f.until.Sub(now))
		}
	}
}
