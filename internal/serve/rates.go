package serve

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/time/rate"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/instrument"
)

// maxRates bounds the table of rates to about 3 MB. A full table drops the user that was seen least
// recently, who has the whole burst again after two seconds anyway.
const maxRates = 10_000

// maxUnderWay is how many requests of a user are under way at once: a quarter of the 80 that Cloud
// Run gives an instance by default. A rate alone is not enough, because a request may last 30
// seconds: three a second with slow bodies, or with waits for fresh data, would take all 80 places.
const maxUnderWay = 20

// rates has how many requests each user may still send to this instance, and how many are under
// way. Reads and writes count alike, because both cost about one statement.
//
// A service of the system has no rate, because it sends the requests of all users and bounds its
// own work. Nor has Everyone, which stands for all callers of a service without authentication.
type rates struct {
	perSecond uint
	limited   metric.Int64Counter
	byScope   *lru.Cache[string, *rate.Limiter]

	mu sync.Mutex
	// underWay has the users with requests under way. byScope may drop a row while a request lasts.
	underWay map[string]int
}

func newRates(perSecond uint) *rates {
	byScope, _ := lru.New[string, *rate.Limiter](maxRates) // fails for a size below 1
	r := &rates{perSecond: perSecond, byScope: byScope, underWay: map[string]int{},
		limited: instrument.For(scope).Counter("requests.limited", "{request}",
			"Requests over REST and gRPC that were refused because their user had sent too many, or had too many under way.")}
	instrument.Begin(r.limited)
	return r
}

// enter counts a request of p until leave is called. If the request is over a limit, enter returns
// the answer to the request as err.
func (r *rates) enter(ctx context.Context, p auth.Principal) (leave func(), err error) {
	if r.perSecond == 0 || p.Kind != auth.User {
		return func() {}, nil
	}
	scope := p.Scope()
	leave = func() { r.count(scope, -1) }
	switch {
	case r.count(scope, 1) > maxUnderWay:
		err = tooMany("CONCURRENCY_EXCEEDED", fmt.Sprintf("A user may have %d requests under way.", maxUnderWay))
	case !r.of(scope).Allow():
		err = tooMany("RATE_EXCEEDED", fmt.Sprintf("A user may send %d requests a second.", r.perSecond))
	default:
		return leave, nil
	}
	leave()
	r.limited.Add(ctx, 1)
	return nil, err
}

// count adds n to the number of the scope's requests under way, and returns the new number.
func (r *rates) count(scope string, n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n += r.underWay[scope]
	if r.underWay[scope] = n; n == 0 {
		delete(r.underWay, scope)
	}
	return n
}

func tooMany(reason, detail string) *problem.Error {
	return &problem.Error{
		Code: problem.CodeTooMany, Reason: reason, Detail: detail, RetryAfter: time.Second, // time for one request
	}
}

// of returns the limiter of the scope, the same one for two first requests at once.
func (r *rates) of(scope string) *rate.Limiter {
	if left, ok := r.byScope.Get(scope); ok {
		return left
	}
	left := rate.NewLimiter(rate.Limit(r.perSecond), 2*int(min(r.perSecond, 1<<30)))
	if first, ok, _ := r.byScope.PeekOrAdd(scope, left); ok {
		return first
	}
	return left
}
