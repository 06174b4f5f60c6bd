package serve

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"golang.org/x/time/rate"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/instrument"
)

// maxRates bounds the table of rates to about 3 MB. A user that has sent nothing for two
// seconds has the whole burst again, so that a row which is dropped later than that is no
// loss; more than 10,000 users in two seconds are more requests than an instance serves.
// Only users with a valid token have a row: a stranger cannot fill the table.
const maxRates = 10_000

// rates are how many requests each user may still send to this instance. Reads and writes
// count alike: both cost about one statement.
//
// A service of the system has no rate: its requests are those of all users, and it bounds
// its own work. Everyone has none: there is no one to tell apart.
type rates struct {
	perSecond uint
	limited   metric.Int64Counter

	mu      sync.Mutex
	byScope map[string]*list.Element
	recent  list.List // of *userRate, with the user of the last request in front
}

type userRate struct {
	scope string
	left  *rate.Limiter
}

func newRates(perSecond uint) *rates {
	r := &rates{perSecond: perSecond, byScope: map[string]*list.Element{},
		limited: instrument.For("example.com/lockstep/internal/serve").Counter("requests.limited", "{request}",
			"Requests over REST and gRPC that were refused because their user had sent too many.")}
	instrument.Begin(r.limited)
	return r
}

// check counts a request of p, and fails with the answer to one too many.
func (r *rates) check(ctx context.Context, p auth.Principal) error {
	if r.perSecond == 0 || p.Kind != auth.User || r.of(p.Scope()).Allow() {
		return nil
	}
	r.limited.Add(ctx, 1)
	return &problem.Error{
		Code: problem.CodeTooMany, Reason: "RATE_EXCEEDED", RetryAfter: time.Second, // in which one is allowed at least
		Detail: fmt.Sprintf("A user may send %d requests a second.", r.perSecond),
	}
}

// of returns the limiter of the scope. A new user in a full table takes the place of the
// one that was seen least recently.
func (r *rates) of(scope string) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.byScope[scope]; ok {
		r.recent.MoveToFront(at)
		return at.Value.(*userRate).left //nolint:forcetypeassert // the list has no others
	}
	if r.recent.Len() == maxRates {
		delete(r.byScope, r.recent.Remove(r.recent.Back()).(*userRate).scope) //nolint:forcetypeassert // as above
	}
	u := &userRate{scope, rate.NewLimiter(rate.Limit(r.perSecond), 2*int(min(r.perSecond, 1<<30)))}
	r.byScope[scope] = r.recent.PushFront(u)
	return u.left
}
