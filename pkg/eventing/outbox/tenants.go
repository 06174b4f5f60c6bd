package outbox

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// DefaultTenantRate is in events per second: a tenth of the lowest rate at which the
	// pair has run on two cores, so that a held tenant leaves most of the work to others.
	DefaultTenantRate = 1000
	// NoTenantRate is the TenantRate of a relay that holds no tenant.
	NoTenantRate = -1
	// activeFor is the time after an event in which its tenant counts as active. A tenant
	// with an event a minute is protected all the time.
	activeFor = time.Minute
	// sharedEvents is the limit of a claim while several tenants are active: a tenant that
	// becomes busy has about two such claims on their way before it is held. fewEvents of each
	// tenant may always be on their way, and are a claim where allTenantsEvents are.
	sharedEvents, fewEvents = 100, 50
	// tenantEvents is how many events of one tenant may be on their way to the broker while
	// several are active, whatever its rate, and allTenantsEvents how many of all: an event of
	// another tenant waits behind those. A broker that takes less than TenantRate would
	// otherwise leave the whole room to the busiest tenants. Retries of all tenants, which are
	// claimed in the order of their times, have retryEvents.
	tenantEvents, allTenantsEvents, retryEvents = 500, 2000, 500
	// tenantLeases is how many events of one tenant may be in flight while several are active, also
	// those that the broker has answered and that cannot be marked: three eighths of the relay's room.
	tenantLeases = 1500
	// turnEvery is the pause between the turns of held tenants. A turn is that much of the
	// rate, so an event of another tenant meets a few dozen requests of theirs.
	turnEvery = 20 * time.Millisecond
	// turnRows limits the rows that a claim of a turn reads, and turnClaims the claims of a
	// turn for each held tenant. Other tenants' rows between a tenant's own would leave the
	// database's work and the turn's duration without a bound.
	turnRows, turnClaims = 500, 4
	// caughtUpFor is the time after which a held tenant is released if no turn has left
	// events of it.
	caughtUpFor = 5 * time.Second
	// maxHeld bounds the held tenants, hence the parameters of a claim and the cursors. A
	// further tenant is not held.
	maxHeld = 64
	// maxTenants bounds the tenants whose rates are known. Beyond it all begin again.
	maxTenants = 1024
)

// tenantRates knows which tenants are active, and which are over their rate: see "Tenants" in the
// package doc. Each relay has its own, so its shares are those of one of the living relays.
type tenantRates struct {
	perSecond int
	// canary is a tenant that does not count.
	canary string

	mu sync.Mutex
	// last is the tenant of the newest event, which came at the time at. previous is the tenant
	// before it, with its newest event at previousAt, and changed the time of the last switch
	// from one to another.
	last, previous          string
	at, previousAt, changed time.Time
	limits                  map[string]*rate.Limiter
}

func newTenantRates(perSecond int, canary string) *tenantRates {
	return &tenantRates{perSecond: perSecond, canary: canary, limits: map[string]*rate.Limiter{}}
}

// meet notes that another relay has met events of a tenant.
func (t *tenantRates) meet(tenant string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != tenant && t.active(now) {
		t.changed = now
	}
}

// active expects the lock. It reports whether the last tenant still counts as active.
func (t *tenantRates) active(now time.Time) bool { return t.last != "" && now.Sub(t.at) < activeFor }

// claims expects the lock. It notes that an event of a tenant was claimed.
func (t *tenantRates) claims(tenant string, now time.Time) {
	if t.last != tenant {
		if t.active(now) {
			t.changed = now
		}
		t.previous, t.previousAt = t.last, t.at
	}
	t.last, t.at = tenant, now
}

// lastActive are up to two tenants whose events this relay has claimed, while they count as
// active. One of them is another one than the busiest.
func (t *tenantRates) lastActive(now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	// Relays that went on naming a silent tenant would keep each other sharing.
	case t.sharing(now) && t.previous != "" && now.Sub(t.previousAt) < activeFor:
		return []string{t.last, t.previous}
	case t.active(now):
		return []string{t.last}
	default:
		return []string{}
	}
}

// shared reports whether several tenants are active.
func (t *tenantRates) shared(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sharing(now)
}

// sharing expects the lock.
func (t *tenantRates) sharing(now time.Time) bool {
	return t.perSecond > 0 && !t.changed.IsZero() && now.Sub(t.changed) < activeFor
}

// claimed counts the events of a claim by one of so many relays, and returns the tenants
// that are over their rate while several are active.
func (t *tenantRates) claimed(batches []queue.Batch, relays int, now time.Time) (busy []string) {
	events := map[string]int{}
	for _, b := range batches {
		if b.Tenant() != t.canary {
			events[b.Tenant()] += len(b)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for tenant, n := range events {
		t.claims(tenant, now)
		l := t.limit(tenant)
		l.SetLimitAt(now, rate.Limit(t.perSecond)/rate.Limit(relays))
		if !l.AllowN(now, n) { // nor if a claim has more than the burst
			busy = append(busy, tenant)
		}
	}
	if !t.sharing(now) {
		return nil
	}
	return busy
}

// limit expects the lock.
func (t *tenantRates) limit(tenant string) *rate.Limiter {
	l := t.limits[tenant]
	if l == nil {
		if len(t.limits) >= maxTenants {
			clear(t.limits)
		}
		// A tenth of a second: another tenant's event waits behind a burst.
		l = rate.NewLimiter(rate.Limit(t.perSecond), max(1, t.perSecond/10))
		t.limits[tenant] = l
	}
	return l
}
