package outbox

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// DefaultTenantRate is in events per second. An event that waits for turns costs about a
	// millisecond of CPU time in all, so a held tenant leaves three quarters of two cores to others.
	DefaultTenantRate = 500
	// NoTenantRate is the TenantRate with which a relay never holds a tenant.
	NoTenantRate = -1
	// activeFor is how long a tenant counts as active after one of its events. So a tenant with
	// an event a minute is protected all the time.
	activeFor = time.Minute
	// sharedEvents limits the events of a claim while several tenants are active. A tenant that
	// becomes busy has about two such claims on their way before it is held. fewEvents of each tenant
	// may always be on their way. It is also the limit of a claim while allTenantsEvents are on their
	// way.
	sharedEvents, fewEvents = 100, 50
	// While several tenants are active, these limit the events on their way to the broker:
	// tenantEvents those of one tenant, allTenantsEvents those of all tenants, and retryEvents the
	// retries of all tenants, which are claimed in the order of their times.
	tenantEvents, allTenantsEvents, retryEvents = 500, 2000, 500
	// tenantLeases is how many events of one tenant may be in flight while several tenants are active:
	// three eighths of the 4,000 up to which the relay has room for another claim. Some may be
	// published, and cannot be marked.
	tenantLeases = 1500
	// turnEvery is the pause between two rounds of turns. An event of another tenant waits behind the
	// events that the rates of held tenants allow in that time, a few dozen requests.
	turnEvery = 20 * time.Millisecond
	// turnRows limits the rows that a claim of a turn reads, and turnClaims the claims of a round of turns, per held
	// tenant. Without them the database's work would grow with the rows of other tenants between a tenant's own.
	turnRows, turnClaims = 500, 4
	// caughtUpFor is the time after which a held tenant is released if no turn was full.
	caughtUpFor = 5 * time.Second
	// maxHeld bounds the number of held tenants, and so the parameters of a claim and the number of
	// cursors.
	maxHeld = 64
	// maxTenants bounds the tenants whose rates are measured. If there are more, all
	// measurements begin again.
	maxTenants = 1024
)

// tenantRates knows which tenants are active, and which are over their rate. See "Tenants" in the
// package doc. Each relay measures for itself.
type tenantRates struct {
	perSecond int
	canary    string

	mu sync.Mutex
	// last is the tenant of the newest event, which was claimed at the time at. previous and
	// previousAt are those before last. changed is when this relay or another one last met a tenant
	// other than last while last was active.
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

// active expects the lock. It is about the last tenant.
func (t *tenantRates) active(now time.Time) bool { return t.last != "" && now.Sub(t.at) < activeFor }

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
// heartbeat, because another relay may meet only the busiest tenant.
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

func (t *tenantRates) shared(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sharing(now)
}

// sharing expects the lock. It reports whether several tenants are active.
func (t *tenantRates) sharing(now time.Time) bool {
	return t.perSecond > 0 && !t.changed.IsZero() && now.Sub(t.changed) < activeFor
}

// count counts events that were claimed or handed over. relays is the number of living relays, among which the
// rate is divided. If several tenants are active, count returns those that are over their rate.
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

// holdBusy counts events that were claimed or handed over, and holds the tenants that are above a limit
// (see "Tenants" in the package doc). relays is the number of living relays.
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
