package outbox

import (
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// heldTenant is a tenant whose events leave in turns: claims of the relay skip them. Its
// low watermarks are part of the relay's.
type heldTenant struct {
	name string
	// low saw none of the events that claims have skipped since the tenant's scan began, and
	// scanningLow none of those that the scan goes through. parts are the rest of it. began
	// says that one has begun. leftLow saw none of those that a turn had to leave, because
	// another session had locked or leased them: a scan finds them from leftAt on.
	low, scanningLow, leftLow queue.TxSnapshot
	leftAt                    time.Time
	parts                     []queue.Cursor
	began                     bool
	// skipped are the parts of the table that scans for all have read without the tenant's
	// events, and skippedLow saw none of these. seen is the snapshot of the latest turn: it
	// may have left events that no claim had seen by then.
	skipped          []queue.Cursor
	skippedLow, seen queue.TxSnapshot
	// pageNext says that a page of the scan comes before the next versions.
	pageNext bool
	// behindAt is the last time when a turn could have claimed more.
	behindAt time.Time
	// saved are the events that the rate allows.
	saved savings
	// published are the tenant's part of followUps.published.
	published versions
}

// lowest saw none of the tenant's events that are unfinished and not in flight.
func (h *heldTenant) lowest() queue.TxSnapshot {
	return queue.Earliest(h.low, h.scanningLow, h.leftLow, h.skippedLow, h.published.low())
}

// hold makes tenants wait for turns. Claims that are on their way do not skip them yet.
func (a *followUps) hold(tenants []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range tenants {
		if a.heldTenant(name) != nil || len(a.held) >= maxHeld {
			continue
		}
		now := time.Now()
		h := &heldTenant{name: name, behindAt: now, saved: savings{at: now}}
		a.published.list = slices.DeleteFunc(a.published.list, func(p followUp) bool {
			if p.tenant == name {
				h.follow(p, h.behindAt)
			}
			return p.tenant == name
		})
		a.held = append(a.held, h)
	}
	signal(a.wakeTurns)
}

// heldTenant expects the lock. It is nil if the tenant is not held.
func (a *followUps) heldTenant(name string) *heldTenant {
	for _, h := range a.held {
		if h.name == name {
			return h
		}
	}
	return nil
}

// heldTenants is how many tenants are held.
func (a *followUps) heldTenants() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.held)
}

// heldNames expects the lock.
func (a *followUps) heldNames() []string {
	names := make([]string, len(a.held))
	for i, h := range a.held {
		names[i] = h.name
	}
	return names
}

// noteSkippedTenants expects the lock. It notes that a claim has skipped these tenants'
// events, which may be as old as from. A tenant that was released during the claim gets a
// scan for them.
func (a *followUps) noteSkippedTenants(from queue.TxSnapshot, tenants []string) {
	for _, name := range tenants {
		if h := a.heldTenant(name); h != nil {
			h.low = queue.Earliest(h.low, from)
		} else {
			a.addScan(from, time.Now())
			signal(a.wakeScans)
		}
	}
}

// noteSkippedPart expects the lock. It notes that a page of the scan, which is this part of the
// table, had none of these tenants' events. So a tenant's own scan reads that part once, and
// not all that the scan goes through.
func (a *followUps) noteSkippedPart(part queue.Cursor, tenants []string) {
	for _, name := range tenants {
		if h := a.heldTenant(name); h != nil {
			h.skipped, h.skippedLow = queue.Join(h.skipped, part), queue.Earliest(h.skippedLow, a.scanningLow)
		} else {
			a.addScan(a.scanningLow, time.Now())
			signal(a.wakeScans)
		}
	}
}

// turn is the next of the held tenants that has work, is allowed a claim by one of so many relays,
// and has room on the way to the broker. events are how many it may claim: behind versions,
// or if there are none in the next page of its scan, which take turns. The tenant is nil if there is
// none.
func (a *followUps) turn(t *tenantRates, f *inFlight, relays int) (h *heldTenant, events int, after []followUp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, rate := time.Now(), float64(t.perSecond)/float64(relays)
	for range len(a.held) {
		h = a.held[0]
		a.held = append(a.held[1:], h)
		sending, room := f.ofTenant(h.name)
		h.saved.earn(sending, rate, len(a.held), now)
		if events = h.saved.allowance(room, rate); events == 0 {
			h.behindAt = now // nothing tells whether it has caught up
			continue
		}
		if len(h.parts) == 0 {
			h.begin(a.seen, now)
		}
		page := len(h.parts) > 0
		switch {
		case len(h.published.list) > 0 && !now.Before(h.published.dueAt) && (!page || !h.pageNext):
			h.pageNext = true
			return h, events, h.published.take(events)
		case page:
			h.pageNext = false
			return h, events, nil
		}
	}
	return nil, 0, nil
}

// turned notes the claim of a turn that has ended now.
func (a *followUps) turned(h *heldTenant, c claimResult, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.saved.spend(c.events())
	if c.full() {
		h.behindAt = now
	}
}

// withoutTurns notes that there could be no turn until now: nothing tells whether a tenant has
// caught up.
func (a *followUps) withoutTurns(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.held {
		h.behindAt = now
		h.saved.skip(now)
	}
}

// releaseCaughtUp releases the tenants that have caught up, or all of them if no other is
// active: claims find their events again, and a scan for all those that they have skipped.
// The goroutine of the turns calls it, so no turn is on its way.
func (a *followUps) releaseCaughtUp(f *inFlight, shared bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range slices.Clone(a.held) {
		idle := h.began && len(h.parts) == 0 && len(h.published.list) == 0 &&
			!f.has(func(b queue.Batch) bool { return b.Tenant() == h.name })
		if !shared || idle || h.began && len(h.parts) == 0 && now.Sub(h.behindAt) > caughtUpFor {
			a.release(h)
		}
	}
}

// begin starts the tenant's scan, if claims or scans have skipped events of its. It ends at the
// snapshot of the last claim of new events: the next ones skip what comes later, and note it
// in low. What a turn has left may be later than that.
func (h *heldTenant) begin(seen queue.TxSnapshot, now time.Time) {
	from := h.low
	if h.leftLow != "" && !now.Before(h.leftAt) {
		from, h.leftLow, h.leftAt = queue.Earliest(from, h.leftLow), "", time.Time{}
	}
	if from == "" && len(h.skipped) == 0 {
		return
	}
	h.scanningLow, h.began = queue.Earliest(from, h.skippedLow), true
	if from != "" {
		h.parts = from.Until(queue.Latest(seen, h.seen))
	}
	h.parts = append(h.parts, h.skipped...) // behind the newest events, which may be wanted most
	h.low, h.skipped, h.skippedLow = "", nil, ""
}

// left notes that a turn, which saw seen, had to leave events that low did not see, until some
// time.
func (a *followUps) left(h *heldTenant, low, seen queue.TxSnapshot, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.seen = queue.Latest(h.seen, seen)
	h.leftLow, h.leftAt = queue.Earliest(h.leftLow, low), soonest(h.leftAt, until)
}

// follow takes in a published version, which is worth a claim from then on.
func (h *heldTenant) follow(p followUp, at time.Time) {
	h.published.add(p, at)
	h.low = queue.Earliest(h.low, h.published.dropExcess())
}

// release expects the lock.
func (a *followUps) release(h *heldTenant) {
	a.held = slices.DeleteFunc(a.held, func(other *heldTenant) bool { return other == h })
	if low := queue.Earliest(h.low, h.scanningLow, h.leftLow, h.skippedLow); low != "" {
		a.addScan(low, time.Now())
		signal(a.wakeScans)
	}
	if len(h.published.list) > 0 {
		for _, p := range h.published.list {
			a.published.add(p, time.Now())
		}
		a.dropExcess()
		signal(a.wakeClaims)
	}
}

// turnFollowed ends a turn's claim of follow-ups, which saw seen and whose events are in
// flight. from is where a scan must begin that finds those that the claim had to leave, such
// as those of paused types; empty means that there are none.
func (a *followUps) turnFollowed(h *heldTenant, from, seen queue.TxSnapshot, paused []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.seen = queue.Latest(h.seen, seen)
	a.noteSkippedTypes(from, paused...)
	h.published.takenLow, h.low = "", queue.Earliest(h.low, from)
}

// turnScanned ends a turn's claim of a page, which has skipped the paused types.
func (a *followUps) turnScanned(h *heldTenant, p queue.Page, paused []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteSkippedTypes(h.scanningLow, paused...)
	if h.parts = behind(h.parts, p); len(h.parts) == 0 {
		h.scanningLow = ""
	}
}

// turnFailed gives back what a turn has taken.
func (a *followUps) turnFailed(h *heldTenant, after []followUp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.published.giveBack(after)
}
