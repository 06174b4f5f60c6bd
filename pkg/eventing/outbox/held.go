package outbox

import (
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// heldTenant is a tenant whose events leave in turns. Other claims and scans skip these events. low,
// scanning, leftLow and skippedLow are lows of its unfinished events.
type heldTenant struct {
	name string

	// low is a low of the events that claims have skipped since the tenant's scan began.
	low queue.TxSnapshot

	// parts are the unread parts of the running scan of the tenant.
	parts []queue.Cursor
	// scanning is a low of the events that the running scan reads.
	scanning datedLow
	began    bool // a scan of the tenant has begun, now or earlier

	// leftLow is a low of the events that a turn could not claim, because another session had locked
	// them, or another relay had leased them. A scan for these events is due at leftAt.
	leftLow queue.TxSnapshot
	leftAt  time.Time

	// skipped are the parts of the table in which scans for all tenants have skipped the tenant's
	// events. skippedLow is a low of these events.
	skipped    []queue.Cursor
	skippedLow queue.TxSnapshot
	// seen is the latest snapshot of the turns. The tenant's scan reads up to seen, because a turn may
	// have left events that no claim of new events has seen yet.
	seen queue.TxSnapshot

	// published has the tenant's published versions, which are not in followUps.published.
	published versions
	// saved has the number of events that the tenant's rate allows.
	saved savings
	// behindAt is the last time at which the tenant may have had more events than a turn took.
	behindAt time.Time

	// Only the goroutine of the turns uses the fields below.

	// pages is how many turns read a page of the scan before one turn claims events behind published
	// versions again. pagesLeft counts these turns down.
	pages, pagesLeft int
	// rows is how many rows a page of the scan reads. If the turn may claim more events than that, the
	// page has a row for each event. More rows would cost time, because a claim also looks at the rows
	// that it leaves.
	rows int
	// rereads is true if the next page reads the rows of the last page again, because the last claim was
	// truncated.
	rereads bool
	// versions is how many published versions a turn looks behind, or more if the turn may claim more
	// events.
	versions int
}

// lowest is the low of the tenant, without events in flight.
func (h *heldTenant) lowest(met meeting) queue.TxSnapshot {
	return queue.Earliest(h.lowOfScans(met), h.published.low())
}

// lowOfScans is the low of the tenant's scans.
func (h *heldTenant) lowOfScans(met meeting) queue.TxSnapshot {
	return queue.Earliest(h.low, met.low(h.scanning), h.leftLow, h.skippedLow)
}

// restart forgets the tenant's lists, because a scan for all tenants that begins at the snapshot floor replaces them. The running
// scan of the tenant goes on.
func (h *heldTenant) restart(floor queue.TxSnapshot) {
	h.low, h.leftLow, h.leftAt, h.skipped, h.skippedLow, h.seen = "", "", time.Time{}, nil, "", ""
	h.published.restart(floor)
}

// hold makes tenants wait for turns. Claims that are already running do not skip the events of
// these tenants.
func (f *followUps) hold(tenants []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range tenants {
		if f.heldTenant(name) != nil || len(f.held) >= maxHeld {
			continue
		}
		now := time.Now()
		h := &heldTenant{name: name, behindAt: now, saved: savings{at: now}}
		f.published.list = slices.DeleteFunc(f.published.list, func(p followUp) bool {
			if p.tenant == name {
				h.follow(p, h.behindAt)
			}
			return p.tenant == name
		})
		f.held = append(f.held, h)
	}
	signal(f.wakeTurns)
}

// heldTenant returns the held tenant with this name, or nil if the tenant is not held. It expects
// the lock.
func (f *followUps) heldTenant(name string) *heldTenant {
	for _, h := range f.held {
		if h.name == name {
			return h
		}
	}
	return nil
}

func (f *followUps) heldTenants() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}

// heldNames expects the lock.
func (f *followUps) heldNames() []string {
	names := make([]string, len(f.held))
	for i, h := range f.held {
		names[i] = h.name
	}
	return names
}

// noteSkippedTenants expects the lock. It notes that a claim has skipped these tenants' events.
// from is their low. If a tenant was released during the claim, noteSkippedTenants schedules a scan
// for all tenants.
func (f *followUps) noteSkippedTenants(from queue.TxSnapshot, tenants []string) {
	for _, name := range tenants {
		if h := f.heldTenant(name); h != nil {
			h.low = queue.Earliest(h.low, from)
		} else {
			f.addScan(from, time.Now())
			signal(f.wakeScans)
		}
	}
}

// noteSkippedPart expects the lock. It notes that a scan for all tenants has skipped these tenants'
// events in a part of the table. from is the low of that scan. So a tenant's own scan reads only the
// parts in which its events were skipped, each of them once.
func (f *followUps) noteSkippedPart(from queue.TxSnapshot, part queue.Cursor, tenants []string) {
	for _, name := range tenants {
		if h := f.heldTenant(name); h != nil {
			h.skipped, h.skippedLow = queue.Join(h.skipped, part), queue.Earliest(h.skippedLow, from)
		} else {
			f.addScan(from, time.Now())
			signal(f.wakeScans)
		}
	}
}

// releaseCaughtUp releases the tenants that have caught up, or all of them unless several tenants
// are active (shared). Only the goroutine of the turns calls releaseCaughtUp, so no turn is running
// meanwhile.
func (f *followUps) releaseCaughtUp(inFlight *inFlight, shared bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range slices.Clone(f.held) {
		idle := h.began && len(h.parts) == 0 && len(h.published.list) == 0 &&
			!inFlight.has(func(b queue.Batch) bool { return b.Tenant() == h.name })
		if !shared || idle || h.began && len(h.parts) == 0 && now.Sub(h.behindAt) > caughtUpFor {
			f.release(h)
		}
	}
}

// follow adds the published version p, which justifies a claim from the time at on.
func (h *heldTenant) follow(p followUp, at time.Time) {
	h.published.add(p, at)
	h.low = queue.Earliest(h.low, h.published.dropExcess())
}

// release expects the lock. It ends the holding of a tenant, and passes the tenant's follow-ups
// to the claims and scans for all tenants.
func (f *followUps) release(h *heldTenant) {
	f.held = slices.DeleteFunc(f.held, func(other *heldTenant) bool { return other == h })
	if low := h.lowOfScans(f.met); low != "" {
		f.addScan(low, time.Now())
		signal(f.wakeScans)
	}
	if len(h.published.list) > 0 {
		for _, p := range h.published.list {
			f.published.add(p, time.Now())
		}
		f.dropExcess()
		signal(f.wakeClaims)
	}
}
