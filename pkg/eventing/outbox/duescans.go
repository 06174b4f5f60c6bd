package outbox

import (
	"maps"
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// This file has the scans that the goroutines of a relay ask for, and what the running scan skips.

// scheduleScan schedules a scan that begins at from, and is due at the time at.
func (a *followUps) scheduleScan(from datedLow, at time.Time) {
	a.mu.Lock()
	a.addScan(a.met.low(from), at)
	a.mu.Unlock()
	signal(a.wakeScans)
}

// scanFor schedules a scan that finds the events of a batch and those behind it.
func (a *followUps) scanFor(h *leasedBatch, at time.Time) { a.scheduleScan(h.low, at) }

// addScan expects the lock. If a scan is scheduled already, the two become one scan, which begins
// at the earlier snapshot and is due at the earlier time.
func (a *followUps) addScan(from queue.TxSnapshot, at time.Time) {
	a.scanLow, a.scanAt = queue.Earliest(a.scanLow, from), soonest(a.scanAt, at)
}

// beginScan begins the scan that is due, and returns its start.
func (a *followUps) beginScan() datedLow {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scanning, a.scanLow, a.scanAt = datedLow{a.scanLow, a.met.life}, "", time.Time{}
	return a.scanning
}

// pageScanned notes the types and the tenants that a page of the scan has skipped. part is the
// part of the table that the page has read.
func (a *followUps) pageScanned(part queue.Cursor, skipped exclusions) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := a.met.low(a.scanning)
	a.noteSkippedTypes(from, skipped.paused...)
	a.noteSkippedPart(from, part, skipped.held)
}

// endScan notes that a scan is complete.
func (a *followUps) endScan() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scanning = datedLow{}
}

// search notes that the next page of the search s for events to probe a topic with is on its way. types are the topic's. Until
// the page ends, the relay's low covers the events that it may lease. If s has no page left, or if the low for these types has
// not covered s since the last page, s begins again. A search does not begin at the low of what is in flight, because it cannot
// lease these events: the low of an event that the sweep has found is the beginning.
func (a *followUps) search(s *probeScan, types []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	low := a.lowOfLists(func(kind string) bool { return slices.Contains(types, kind) })
	if len(s.parts) == 0 || s.low.in != a.met.life || queue.Earliest(low, s.low.at) != low {
		s.low, s.parts, s.took = datedLow{low, a.met.life}, low.Since(), 0
	}
	a.searching = s.low
}

// endSearch notes that the page of a search is complete. The events that it has found are in flight already.
func (a *followUps) endSearch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.searching = datedLow{}
}

// searchLost notes that the page of a search has no answer. It may have leased events all the same. The topic may have resumed since
// the search began, and the scan that followed has left these events alone. So the relay skips the types once more. If they
// are not paused any more, setPausedTypes schedules another scan.
func (a *followUps) searchLost(types []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.searching.at != "" {
		a.noteSkippedTypes(a.met.low(a.searching), types...)
	}
}

// topicResumed schedules a scan of the events of these types that the relay has skipped because their topic was paused.
func (a *followUps) topicResumed(types []string) {
	resumed := func(kind string) bool { return slices.Contains(types, kind) }
	a.mu.Lock()
	a.scanSkippedTypes(resumed)
	a.pausedTypes = slices.DeleteFunc(slices.Clone(a.pausedTypes), resumed)
	a.mu.Unlock()
	signal(a.wakeClaims)
	signal(a.wakeScans)
}

// scanSkippedTypes expects the lock. It schedules a scan of the skipped events of these types.
func (a *followUps) scanSkippedTypes(these func(kind string) bool) {
	for kind, low := range a.skippedTypes {
		if these(kind) {
			a.addScan(low, time.Now())
			delete(a.skippedTypes, kind)
		}
	}
}

// noteSkippedTypes expects the lock. It notes that the relay has skipped events of the types in
// paused. A scan finds these events if it begins at the snapshot that is the argument from.
func (a *followUps) noteSkippedTypes(from queue.TxSnapshot, paused ...string) {
	for _, kind := range paused {
		a.skippedTypes[kind] = queue.Earliest(a.skippedTypes[kind], from)
	}
}

// setPausedTypes records the types of paused topics. A topic may resume during a claim that
// skips its type. Then topicResumed runs before the claim's noteSkippedTypes, and schedules no
// scan for the type. So setPausedTypes schedules a scan of each skipped type that is no longer paused.
func (a *followUps) setPausedTypes(paused []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pausedTypes = paused
	before := len(a.skippedTypes)
	a.scanSkippedTypes(func(kind string) bool { return !slices.Contains(paused, kind) })
	if len(a.skippedTypes) < before {
		signal(a.wakeScans)
	}
}

// exclusions are the types and the tenants that a scan must skip, and the tokens of the other
// living relays. A scan can ignore the leases of these relays, because each relay takes care of
// its own leases. life is the life of the server in which that was true. gone are the relays whose leases count as none.
type exclusions struct {
	paused, alive, held, gone []string
	life                      life
}

func (a *followUps) exclusions() exclusions {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.present(a.pausedTypes)
}

// present expects the lock. It returns the present exclusions, with these types.
func (a *followUps) present(paused []string) exclusions {
	return exclusions{paused, a.aliveRelays, a.heldNames(), slices.Collect(maps.Keys(a.goneRelays)), a.met.life}
}

// meetGone expects the lock. It notes the relays that a heartbeat has found gone, and reports whether some are so for the
// first time. One that is alive again was only away: it had lost its session, and was late. The order of its events does not
// depend on its leases.
func (a *followUps) meetGone(gone, alive []string, now time.Time) (first bool) {
	for _, token := range gone {
		_, known := a.goneRelays[token]
		first = first || !known
		a.goneRelays[token] = now.Add(queue.LeaseTime)
	}
	maps.DeleteFunc(a.goneRelays, func(token string, until time.Time) bool {
		return slices.Contains(alive, token) || now.After(until)
	})
	return first
}

// noteUnknownLeases notes that a statement that writes leases has failed. The statement may have
// been committed nevertheless.
func (a *followUps) noteUnknownLeases() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expectUnknownLeases()
}

// expectUnknownLeases expects the lock. A lease that the relay does not know of is over after that time.
func (a *followUps) expectUnknownLeases() {
	a.unknownLeasesUntil = time.Now().Add(queue.LeaseTime + queue.Timeout)
}

func (a *followUps) mayHaveUnknownLeases() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.unknownLeasesUntil)
}
