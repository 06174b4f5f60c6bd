package outbox

import (
	"maps"
	"slices"
)

// accountSending expects the lock.
func (f *inFlight) accountSending(h *leasedBatch, sign int) {
	n, tenant := sign*len(h.events), h.events.Tenant()
	if h.retry {
		f.retrying += n
	} else if f.sending[tenant] += n; f.sending[tenant] == 0 {
		delete(f.sending, tenant)
	}
}

// answer notes that the broker has answered a batch. No event waits behind it from now on, however
// long it takes to be settled.
func (f *inFlight) answer(h *leasedBatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !h.candidate {
		f.accountSending(h, -1)
	}
	h.answered = true
}

// ofTenant is how many events of a tenant are on their way to the broker, and for how many more there
// is room while several are active.
func (f *inFlight) ofTenant(tenant string) (sending, room int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sending = f.sending[tenant]
	room = max(fewEvents-sending, min(allTenantsEvents-f.sendingAll(), f.share()-sending))
	return sending, min(room, tenantLeases-f.leased[tenant])
}

// roomOfAll is how many more events of all tenants may go to the broker while several are active.
func (f *inFlight) roomOfAll() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return allTenantsEvents - f.sendingAll()
}

// sendingAll expects the lock.
func (f *inFlight) sendingAll() (events int) {
	for _, n := range f.sending {
		events += n
	}
	return events
}

// crowding are the tenants, but for one, that have more events in flight than they may while several
// are active: than their share of those on the way to the broker, or than a few where there is no
// room. Those with the most come first.
func (f *inFlight) crowding(but string) (tenants []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	share := f.share()
	if f.sendingAll() >= allTenantsEvents {
		share = fewEvents
	}
	for tenant, leased := range f.leased {
		if (f.sending[tenant] > share || leased > tenantLeases) && tenant != but {
			tenants = append(tenants, tenant)
		}
	}
	slices.SortFunc(tenants, func(a, b string) int { return f.leased[b] - f.leased[a] })
	return tenants
}

// share expects the lock. It is how many events of one tenant may be on their way to the broker
// while several are active: all of them share allTenantsEvents, those with few leaving the rest to
// the others (max-min fairness).
func (f *inFlight) share() int {
	left, tenants := allTenantsEvents, len(f.sending)
	for _, events := range slices.Sorted(maps.Values(f.sending)) {
		if fair := left / tenants; events > fair {
			return min(tenantEvents, max(fewEvents, fair))
		}
		left, tenants = left-events, tenants-1
	}
	return tenantEvents
}

// retriesWait reports whether no further retries may go to the broker while several tenants are
// active.
func (f *inFlight) retriesWait() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.retrying >= retryEvents
}
