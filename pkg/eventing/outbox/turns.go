package outbox

import (
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// turn returns the next held tenant that has work, and whose rate and share allow a claim. relays
// is the number of living relays, among which the rate is divided. events is how many events the
// turn may claim. If after has versions, the turn claims the events behind these versions.
// Otherwise the turn reads the next page of the tenant's scan. See adaptPages for how the two kinds
// of turns alternate. h is nil if no tenant can have a turn.
func (f *followUps) turn(t *tenantRates, inFlight *inFlight, relays int) (h *heldTenant, events int, after []followUp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, rate := time.Now(), float64(t.perSecond)/float64(relays)
	for range len(f.held) {
		h = f.held[0]
		f.held = append(f.held[1:], h)
		sending, room := inFlight.ofTenant(h.name)
		h.saved.earn(sending, rate, len(f.held), now)
		if events = h.saved.allowance(room, rate); events == 0 {
			h.behindAt = now // without a turn it is unknown whether the tenant has caught up
			continue
		}
		if len(h.parts) == 0 {
			h.begin(f.seen, f.met.life, now)
		}
		page := len(h.parts) > 0
		// A look is a claim behind published versions. Pages add versions, and must not add more than a
		// look takes, so turnRows versions end the pages early. But one page comes before each look in any
		// case, because a look that takes events leaves as many versions as it takes.
		look := h.pagesLeft <= 0 || len(h.published.list) >= turnRows && h.pagesLeft < h.pages
		switch {
		case len(h.published.list) > 0 && !now.Before(h.published.dueAt) && (!page || look):
			h.pagesLeft = max(1, h.pages)
			return h, events, h.published.take(max(events, h.versions))
		case page:
			h.pagesLeft--
			return h, events, nil
		}
	}
	return nil, 0, nil
}

// turned notes c, the claim of a turn. The turn ended at the time now.
func (f *followUps) turned(h *heldTenant, c claimResult, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.saved.spend(c.events())
	if c.full() || c.cutShort() {
		h.behindAt = now
	}
}

// withoutTurns notes that no turn was possible until the time now. So the relay does not know
// whether a tenant has caught up, and tenants save up no events for the time without turns.
func (f *followUps) withoutTurns(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.held {
		h.behindAt = now
		h.saved.skip(now)
	}
}

// begin starts the tenant's scan if claims or scans have skipped events of the tenant. The scan
// ends at seen, the snapshot of the last claim of new events, because later claims note the events
// that they skip in h.low. If a turn has a later snapshot than seen, the scan ends at the turn's
// snapshot, because the turn may have left events that seen did not see.
func (h *heldTenant) begin(seen queue.TxSnapshot, in life, now time.Time) {
	from := h.low
	if h.leftLow != "" && !now.Before(h.leftAt) {
		from, h.leftLow, h.leftAt = queue.Earliest(from, h.leftLow), "", time.Time{}
	}
	if from == "" && len(h.skipped) == 0 {
		return
	}
	h.scanning, h.began = datedLow{queue.Earliest(from, h.skippedLow), in}, true
	if from != "" {
		h.parts = from.Until(queue.Latest(seen, h.seen))
	}
	// The newest events come first, because they may be wanted most.
	h.parts = append(h.parts, h.skipped...)
	h.low, h.skipped, h.skippedLow = "", nil, ""
}

// left notes that a turn could not claim some events, because other sessions have locked them, or other
// relays have leased them. low is a low of these events. seen is the snapshot of the turn. until is
// when the events may be free.
func (f *followUps) left(h *heldTenant, low datedLow, seen queue.TxSnapshot, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.seen = queue.Latest(h.seen, seen)
	h.leftLow, h.leftAt = queue.Earliest(h.leftLow, f.met.low(low)), soonest(h.leftAt, until)
}

// turnFollowed ends a turn's claim behind published versions. The claimed events are in flight,
// and seen is the snapshot of the claim. rest are the versions behind which the claim had no room to
// look. left is a low of the events that the claim had to leave, such as events of paused types. It is empty if the claim
// left no events.
func (f *followUps) turnFollowed(h *heldTenant, rest []followUp, left datedLow, seen queue.TxSnapshot, paused []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.seen = queue.Latest(h.seen, seen)
	from := f.met.low(left)
	f.noteSkippedTypes(from, paused...)
	h.low = queue.Earliest(h.low, from)
	h.published.giveBack(rest)
}

// turnScanned ends a turn's claim in the page p. The claim has skipped events of the types in
// paused.
func (f *followUps) turnScanned(h *heldTenant, p queue.Page, paused []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteSkippedTypes(f.met.low(h.scanning), paused...)
	if h.parts = behind(h.parts, p); len(h.parts) == 0 {
		h.scanning = datedLow{}
	}
}

// turnFailed gives back the published versions that a failed turn has taken.
func (f *followUps) turnFailed(h *heldTenant, after []followUp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.published.giveBack(after)
}
