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
// recently. A user who has sent nothing for two seconds has the whole burst again anyway, and an
// instance serves fewer users in two seconds. A stranger has no row.
const maxRates = 10_000

// maxUnderWay is how many requests of a user are under way at once. It is a quarter of the 80
// requests that Cloud Run gives an instance by default, and more than an application sends at once
// for one person. A rate alone is not enough, because a request may last 30 seconds. Three requests
// a second with slow bodies, or with waits for fresh data, are below every rate but would take all
// 80 places.
const maxUnderWay = 20

// rates has how many requests each user may still send to this instance, and how many of the
// user's requests are under way. Reads and writes count alike, because both cost about one
// statement.
//
// A service of the system has no rate, because it sends the requests of all users and bounds its
// own work. The principal Everyone stands for all callers of a service without authentication.
// It has no rate, because these callers cannot be told apart.
type rates struct {
	perSecond uint
	limited   metric.Int64Counter
	byScope   *lru.Cache[string, *rate.Limiter]

	mu sync.Mutex
	// underWay has the users with requests under way. It has at most as many rows as the server has
	// requests. The counts are not in byScope, because a row of byScope can be dropped while a
	// request lasts.
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

// of returns the limiter of the scope. In a full table, a new user replaces the user that was seen
// least recently. If two first requests of a user come at once, both get the same limiter.
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
