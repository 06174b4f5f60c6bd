package outbox

import (
	"maps"
	"slices"
)

// accountSending expects the lock. It adds the events of a batch to the count of events on their
// way to the broker if sign is 1, and subtracts them if sign is -1.
func (f *inFlight) accountSending(b *leasedBatch, sign int) {
	n, tenant := sign*len(b.events), b.events.Tenant()
	if b.retry {
		f.retrying += n
	} else if f.sending[tenant] += n; f.sending[tenant] == 0 {
		delete(f.sending, tenant)
	}
}

// answer notes that the broker has answered a batch. From now on the events of the batch no longer
// count as on their way to the broker, even if settling the batch takes long.
func (f *inFlight) answer(b *leasedBatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !b.candidate {
		f.accountSending(b, -1)
	}
	b.answered = true
}

// ofTenant returns two numbers. sending is how many events of a tenant are on their way to the
// broker. room is how many more events of the tenant may be claimed while several tenants are
// active.
func (f *inFlight) ofTenant(tenant string) (sending, room int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sending = f.sending[tenant]
	room = max(fewEvents-sending, min(allTenantsEvents-f.sendingAll(), f.share()-sending))
	return sending, min(room, tenantLeases-f.leased[tenant])
}

// roomOfAll returns how many more events of all tenants together may be claimed while several
// tenants are active.
func (f *inFlight) roomOfAll() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return allTenantsEvents - f.sendingAll()
}

// sendingAll expects the lock. It returns how many events of all tenants are on their way to the
// broker.
func (f *inFlight) sendingAll() (events int) {
	for _, n := range f.sending {
		events += n
	}
	return events
}

// crowding returns the tenants that have more events than they may have while several tenants are
// active. It leaves out the tenant in the parameter but. The limits are the share for events on
// their way to the broker, and tenantLeases for events in flight. While all tenants together have
// used up allTenantsEvents, the share is fewEvents. Tenants with the most events in flight come
// first.
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

// share expects the lock. It returns how many events of one tenant may be on their way to the
// broker while several tenants are active. The tenants share allTenantsEvents by max-min fairness.
// A tenant with fewer events than its fair part leaves the rest of that part to other tenants.
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

// retriesWait reports whether retryEvents retries or more are on their way to the broker. If so, no
// further retries may be claimed while several tenants are active.
func (f *inFlight) retriesWait() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.retrying >= retryEvents
}
