package outbox

import (
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// heldTenant is a tenant whose events leave in turns. The relay's other claims and scans skip these
// events. low, scanning, leftLow and skippedLow are lows of its unfinished events (see "Lows and lives"
// in doc.go), so the relay's low is not later than they are.
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

	// pages is a number of turns. While the scan has pages left, that many turns each read a page
	// before one turn claims events behind published versions again. pagesLeft counts these turns down.
	pages, pagesLeft int
	// rows is how many rows a page of the scan reads. If the turn may claim more events than that, the
	// page has a row for each event. In a page that is full of the tenant's events, rows should be about
	// the number that a turn claims, because a claim also looks at the rows that it leaves.
	rows int
	// rereads is true if the next page reads the rows of the last page again, because the last claim was
	// truncated. The last claim has taken most of them.
	rereads bool
	// versions is how many published versions a turn looks behind. A turn that may claim more events
	// than that looks behind as many versions as events.
	versions int
}

// lowest returns a snapshot that saw none of the tenant's unfinished events, except those in
// flight.
func (h *heldTenant) lowest(met meeting) queue.TxSnapshot {
	return queue.Earliest(h.lowOfScans(met), h.published.low())
}

// lowOfScans returns a snapshot that saw none of the events for which the tenant's scans look.
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

// heldTenants returns how many tenants are held.
func (f *followUps) heldTenants() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}

// heldNames returns the names of the held tenants. It expects the lock.
func (f *followUps) heldNames() []string {
	names := make([]string, len(f.held))
	for i, h := range f.held {
		names[i] = h.name
	}
	return names
}

// noteSkippedTenants expects the lock. It notes that a claim has skipped these tenants' events.
// The snapshot from saw none of the skipped events. If a tenant was released during the claim,
// noteSkippedTenants schedules a scan for all tenants, which finds the tenant's events.
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
// events in a part of the table. from is the snapshot from which that scan started. So a tenant's own
// scan reads only the parts in which its events were skipped, and reads each of these parts once. If a
// tenant was released during the page, noteSkippedPart schedules a scan for all tenants.
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

// releaseCaughtUp releases the tenants that have caught up. shared says that several tenants are
// active. If shared is false, releaseCaughtUp releases all held tenants. Claims then take the
// events of released tenants again, and a scan for all tenants finds the events that were skipped.
// Only the goroutine of the turns calls releaseCaughtUp, so no turn is running meanwhile.
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

// follow adds the published version p. From the time in at on, p justifies a claim.
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
