package outbox

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// DefaultTenantRate is in events per second. An event that waits for turns costs about a
	// millisecond of CPU time, in all processes and databases together. So a held tenant leaves three
	// quarters of two cores to others.
	DefaultTenantRate = 500
	// NoTenantRate is the TenantRate with which a relay never holds a tenant.
	NoTenantRate = -1
	// activeFor is how long a tenant counts as active after one of its events. So a tenant with
	// an event a minute is protected all the time.
	activeFor = time.Minute
	// sharedEvents limits the events of a claim while several tenants are active. A tenant that
	// becomes busy has the events of about two such claims on their way before it is held.
	// fewEvents is how many events of each tenant may always be on their way. fewEvents is also the
	// limit of a claim while allTenantsEvents are on their way.
	sharedEvents, fewEvents = 100, 50
	// These limits apply while several tenants are active. tenantEvents is how many events of one
	// tenant may be on their way to the broker, whatever its rate. allTenantsEvents is how many
	// events of all tenants together may be on their way. An event of another tenant waits behind
	// these events. Without the two limits the busiest tenants would fill the relay where the
	// broker takes fewer events per second than TenantRate. retryEvents is the limit for the
	// retries of all tenants, which are claimed in the order of their times.
	tenantEvents, allTenantsEvents, retryEvents = 500, 2000, 500
	// tenantLeases is how many events of one tenant may be in flight while several tenants are
	// active. That is three eighths of 4,000, the number of events in flight up to which the relay
	// has room for another claim. Events in flight include events that the broker has answered and
	// that cannot be marked.
	tenantLeases = 1500
	// turnEvery is the pause between two rounds of turns. A turn takes the events that the
	// tenant's rate allows in that time. So an event of another tenant waits behind a few dozen
	// requests of held tenants.
	turnEvery = 20 * time.Millisecond
	// turnRows limits the rows that a claim of a turn reads (see heldTenant.rows). turnClaims limits the claims of a
	// round of turns, per held tenant. Without these limits the database's work and the
	// duration of a turn would grow with the rows of other tenants that lie between a tenant's
	// own rows.
	turnRows, turnClaims = 500, 4
	// caughtUpFor is the time after which a held tenant is released if no turn was full.
	caughtUpFor = 5 * time.Second
	// maxHeld bounds the number of held tenants, and so the parameters of a claim and the
	// number of cursors. While maxHeld tenants are held, no other tenant is held.
	maxHeld = 64
	// maxTenants bounds the tenants whose rates are measured. If there are more, all
	// measurements begin again.
	maxTenants = 1024
)

// tenantRates knows which tenants are active, and which are over their rate. See "Tenants" in
// the package doc. Each relay measures for itself, so it divides the rate by the number of living
// relays.
type tenantRates struct {
	perSecond int
	// canary is a tenant that neither counts as active nor is held.
	canary string

	mu sync.Mutex
	// last is the tenant of the newest event, and at is when that event was claimed. previous is
	// the tenant that was in last before, and previousAt is when its newest event was claimed.
	// changed is the latest time at which this relay or another relay met a tenant other than last
	// while last was active.
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

// note expects the lock. It notes that an event of a tenant was claimed.
func (t *tenantRates) note(tenant string, now time.Time) {
	if t.last != tenant {
		if t.active(now) {
			t.changed = now
		}
		t.previous, t.previousAt = t.last, t.at
	}
	t.last, t.at = tenant, now
}

// lastActive returns up to two active tenants whose events this relay has claimed last, for its
// heartbeat. With two of them, another relay that meets only the busiest tenant learns of another
// tenant.
func (t *tenantRates) lastActive(now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	// If relays went on naming a silent tenant, each would make the others believe that several
	// tenants are active.
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

// sharing expects the lock. It does the same as the method shared.
func (t *tenantRates) sharing(now time.Time) bool {
	return t.perSecond > 0 && !t.changed.IsZero() && now.Sub(t.changed) < activeFor
}

// count counts events that were claimed or handed over. relays is the number of living relays, among which the
// rate is divided. count returns the tenants that are over their rate, or none unless several
// tenants are active.
func (t *tenantRates) count(batches []queue.Batch, relays int, now time.Time) (busy []string) {
	events := map[string]int{}
	for _, b := range batches {
		if b.Tenant() != t.canary {
			events[b.Tenant()] += len(b)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for tenant, n := range events {
		t.note(tenant, now)
		l := t.limit(tenant)
		l.SetLimitAt(now, rate.Limit(t.perSecond)/rate.Limit(relays))
		if !l.AllowN(now, n) { // AllowN also returns false if n is more than the burst
			busy = append(busy, tenant)
		}
	}
	if !t.sharing(now) {
		return nil
	}
	return busy
}

// limit returns the limiter of a tenant's rate. It expects the lock.
func (t *tenantRates) limit(tenant string) *rate.Limiter {
	l := t.limits[tenant]
	if l == nil {
		if len(t.limits) >= maxTenants {
			clear(t.limits)
		}
		// The burst is a tenth of a second of the rate, because other tenants' events wait behind
		// a burst. But a single claim of a tenant that seldom writes is within its rate.
		l = rate.NewLimiter(rate.Limit(t.perSecond), max(sharedEvents, t.perSecond/10))
		t.limits[tenant] = l
	}
	return l
}

// holdBusy counts events that were claimed or handed over, and holds busy tenants (see "Tenants" in the
// package doc) if several tenants are active. A busy tenant is over its rate, has more events on their
// way to the broker than its share, or has more than tenantLeases events in flight. relays is the
// number of living relays.
func (r *Relay) holdBusy(claimed []queue.Batch, relays int) {
	now := time.Now()
	busy := r.tenants.count(claimed, relays, now)
	if !r.tenants.shared(now) {
		return
	}
	if busy = append(busy, r.inFlight.crowding(r.options.Canary)...); len(busy) > 0 {
		r.followUps.hold(busy)
	}
}
