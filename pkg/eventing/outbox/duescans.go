package outbox

import (
	"maps"
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// This file has the scans that the goroutines of a relay ask for, and what the running scan skips.

// scheduleScan schedules a scan that begins at from, and is due at the time at.
func (f *followUps) scheduleScan(from datedLow, at time.Time) {
	f.mu.Lock()
	f.addScan(f.met.low(from), at)
	f.mu.Unlock()
	signal(f.wakeScans)
}

// scanFor schedules a scan that finds the events of a batch and those behind it.
func (f *followUps) scanFor(b *leasedBatch, at time.Time) { f.scheduleScan(b.low, at) }

// addScan expects the lock. If a scan is scheduled already, the two become one scan, which begins
// at the earlier snapshot and is due at the earlier time.
func (f *followUps) addScan(from queue.TxSnapshot, at time.Time) {
	f.scanLow, f.scanAt = queue.Earliest(f.scanLow, from), soonest(f.scanAt, at)
}

// beginScan begins the scan that is due, and returns the low from which it starts.
func (f *followUps) beginScan() datedLow {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scanning, f.scanLow, f.scanAt = datedLow{f.scanLow, f.met.life}, "", time.Time{}
	return f.scanning
}

// pageScanned notes the types and the tenants that a page of the scan has skipped. part is the
// part of the table that the page has read.
func (f *followUps) pageScanned(part queue.Cursor, skipped exclusions) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := f.met.low(f.scanning)
	f.noteSkippedTypes(from, skipped.paused...)
	f.noteSkippedPart(from, part, skipped.held)
}

// endScan notes that a scan is complete.
func (f *followUps) endScan() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scanning = datedLow{}
}

// search notes that the search s reads its next page now. s looks for events with which a paused topic
// can be probed, and types are the aggregate types of this topic. Until the page ends, the relay's low
// covers the events that the page may lease.
//
// search starts s again from the low of these types if s has no page left, or if the server has another
// life. It also does so if the low of these types is later than the low of s: then the relay's low has
// not covered s since the last page. A search does not start from the lows of batches in flight,
// because it cannot lease their events: a batch that the sweep has found has queue.Beginning as its
// low.
func (f *followUps) search(s *probeScan, types []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	low := f.lowOfLists(func(kind string) bool { return slices.Contains(types, kind) })
	if len(s.parts) == 0 || s.low.life != f.met.life || queue.Earliest(low, s.low.snapshot) != low {
		s.low, s.parts, s.took = datedLow{low, f.met.life}, low.Since(), 0
	}
	f.searching = s.low
}

// endSearch notes that the page of a search is complete. The events that it has found are in flight already.
func (f *followUps) endSearch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.searching = datedLow{}
}

// searchLost notes that the claim of a search for probes has failed. The claim may have leased events
// of these types all the same. If the topic has resumed since the search began, the scan after that
// resume has left these events alone, because they had a lease of this relay. So searchLost notes once
// more that the relay skips events of these types. If the types are not paused any more, setPausedTypes
// schedules another scan.
func (f *followUps) searchLost(types []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.searching.snapshot != "" {
		f.noteSkippedTypes(f.met.low(f.searching), types...)
	}
}

// topicResumed schedules a scan of the events of these types that the relay has skipped because their topic was paused.
func (f *followUps) topicResumed(types []string) {
	resumed := func(kind string) bool { return slices.Contains(types, kind) }
	f.mu.Lock()
	f.scanSkippedTypes(resumed)
	f.pausedTypes = slices.DeleteFunc(slices.Clone(f.pausedTypes), resumed)
	f.mu.Unlock()
	signal(f.wakeClaims)
	signal(f.wakeScans)
}

// scanSkippedTypes expects the lock. It schedules a scan of the skipped events of these types.
func (f *followUps) scanSkippedTypes(these func(kind string) bool) {
	for kind, low := range f.skippedTypes {
		if these(kind) {
			f.addScan(low, time.Now())
			delete(f.skippedTypes, kind)
		}
	}
}

// noteSkippedTypes expects the lock. It notes that the relay has skipped events of the types in
// paused. A scan finds these events if it begins at the snapshot that is the argument from.
func (f *followUps) noteSkippedTypes(from queue.TxSnapshot, paused ...string) {
	for _, kind := range paused {
		f.skippedTypes[kind] = queue.Earliest(f.skippedTypes[kind], from)
	}
}

// setPausedTypes records the types of paused topics. A topic may resume during a claim that
// skips its type. Then topicResumed runs before the claim's noteSkippedTypes, and schedules no
// scan for the type. So setPausedTypes schedules a scan of each skipped type that is no longer paused.
func (f *followUps) setPausedTypes(paused []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pausedTypes = paused
	before := len(f.skippedTypes)
	f.scanSkippedTypes(func(kind string) bool { return !slices.Contains(paused, kind) })
	if len(f.skippedTypes) < before {
		signal(f.wakeScans)
	}
}

// exclusions decide which pending events a claim or a scan leaves out.
type exclusions struct {
	paused []string // the types of paused topics
	alive  []string // the tokens of the other living relays, which take care of the events that they have leased
	held   []string // the held tenants
	gone   []string // the tokens of gone relays: their leases count as none
	life   life     // the life of the server to which the lists belong
}

func (f *followUps) exclusions() exclusions {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.present(f.pausedTypes)
}

// present expects the lock. It returns the present exclusions, with the types in paused.
func (f *followUps) present(paused []string) exclusions {
	return exclusions{paused, f.aliveRelays, f.heldNames(), slices.Collect(maps.Keys(f.goneRelays)), f.met.life}
}

// meetGone expects the lock. It notes the relays that a heartbeat has found gone, and reports whether
// it has found one of them for the first time. It forgets a gone relay that is alive again. Such a
// relay had only lost its session, and its heartbeat was late. Until now this relay has ignored its
// leases, which is safe, because the order of events does not depend on leases.
func (f *followUps) meetGone(gone, alive []string, now time.Time) (first bool) {
	for _, token := range gone {
		_, known := f.goneRelays[token]
		first = first || !known
		f.goneRelays[token] = now.Add(queue.LeaseTime)
	}
	maps.DeleteFunc(f.goneRelays, func(token string, until time.Time) bool {
		return slices.Contains(alive, token) || now.After(until)
	})
	return first
}

// noteUnknownLeases notes that a statement that writes leases has failed. The statement may have
// been committed nevertheless.
func (f *followUps) noteUnknownLeases() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expectUnknownLeases()
}

// expectUnknownLeases expects the lock. It sets unknownLeasesUntil to a time at which each lease that
// the relay does not know of is over.
func (f *followUps) expectUnknownLeases() {
	f.unknownLeasesUntil = time.Now().Add(queue.LeaseTime + queue.Timeout)
}

func (f *followUps) mayHaveUnknownLeases() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.unknownLeasesUntil)
}
