package serve

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
)

func newUser() auth.Principal { return auth.Principal{Kind: auth.User, User: uuid.New()} }

// once is a request of p that has ended.
func once(t *testing.T, r *rates, p auth.Principal) error {
	t.Helper()
	leave, err := r.enter(t.Context(), p)
	if err == nil {
		leave()
	}
	return err
}

// allowed is how many of 1000 requests at once the rates let through.
func allowed(t *testing.T, r *rates, p auth.Principal) (n int) {
	t.Helper()
	for range 1000 {
		if once(t, r, p) == nil {
			n++
		}
	}
	return n
}

func TestRatesOfUsers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, alice, bob := newRates(100), newUser(), newUser()
		alice.Admin = true // an admin is a person, too
		if n := allowed(t, r, alice); n != 200 {
			t.Errorf("%d at once, want 200", n)
		}
		if e := problem.From(once(t, r, alice)); e.Code != problem.CodeTooMany || e.Reason != "RATE_EXCEEDED" || e.RetryAfter != time.Second {
			t.Errorf("one more: %+v", e)
		}
		time.Sleep(time.Second)
		if n := allowed(t, r, alice); n != 100 {
			t.Errorf("%d after a second, want 100", n)
		}
		time.Sleep(time.Hour)
		if n := allowed(t, r, alice); n != 200 {
			t.Errorf("%d after an hour, want 200", n)
		}
		if n := allowed(t, r, bob); n != 200 {
			t.Errorf("%d of another user, want 200", n)
		}
		for _, p := range []auth.Principal{{Kind: auth.Everyone}, {Kind: auth.Service, Service: "catalog@p.iam.gserviceaccount.com"}} {
			if n := allowed(t, r, p); n != 1000 || r.byScope.Len() != 2 {
				t.Errorf("%v: %d with %d rows, want all, and no row", p, n, r.byScope.Len())
			}
		}
		bob.Tenant = "acme"
		if n := allowed(t, r, bob); n != 200 {
			t.Errorf("%d of the same user in another tenant, want 200", n)
		}
		if n := allowed(t, newRates(0), alice); n != 1000 {
			t.Errorf("%d without a limit, want all", n)
		}
		if n := allowed(t, newRates(1), alice); n != 2 {
			t.Errorf("%d of one a second, want 2", n)
		}
	})
}

// More users than rows: the table does not grow, and the users who were seen last keep
// their rows.
func TestTheTableOfRatesIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, first, busy := newRates(100), newUser(), newUser()
		if n := allowed(t, r, first) + allowed(t, r, busy); n != 400 {
			t.Fatalf("%d, want 400", n)
		}
		for i := range 2 * maxRates {
			if err := once(t, r, newUser()); err != nil {
				t.Fatal(err)
			}
			if i%1000 == 0 && once(t, r, busy) == nil {
				t.Fatalf("a user who is over the limit is let in after %d others", i)
			}
		}
		if r.byScope.Len() != maxRates {
			t.Errorf("%d rows, want %d", r.byScope.Len(), maxRates)
		}
		if n := allowed(t, r, first); n != 200 {
			t.Errorf("%d of a user who was away for long, want 200", n)
		}
	})
}

// A request may last for longer than its user's row of rates.
func TestRequestsUnderWayAreCountedForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, slow := newRates(100), newUser()
		var ends []func()
		for range 3 {
			for range maxUnderWay {
				if leave, err := r.enter(t.Context(), slow); err == nil {
					ends = append(ends, leave)
				}
			}
			for range maxRates + 1 { // all rows are others' now
				if err := once(t, r, newUser()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(ends) != maxUnderWay || len(r.underWay) != 1 {
			t.Errorf("%d requests of a user are under way, want %d; %d users have any", len(ends), maxUnderWay, len(r.underWay))
		}
		for _, leave := range ends {
			leave()
		}
		if once(t, r, slow) != nil || len(r.underWay) != 0 {
			t.Errorf("%d users have requests under way after the last one", len(r.underWay))
		}
	})
}

// A user who was never seen must not cost more than one who was.
func BenchmarkRates(b *testing.B) {
	for _, name := range []string{"known", "unknown"} {
		b.Run(name, func(b *testing.B) {
			r, scopes := newRates(100), make([]string, 4*maxRates)
			for i := range scopes {
				scopes[i] = fmt.Sprint("user:", i)
				r.of(scopes[i])
			}
			if name == "known" {
				scopes = scopes[3*maxRates:]
			}
			b.ReportAllocs()
			for i := range b.N {
				r.of(scopes[i%len(scopes)]).Allow()
			}
		})
	}
}

func TestRefusalsOfUsersAreCounted(t *testing.T) { //nolint:paralleltest // it sets the process's meter provider
	reader, before := metric.NewManualReader(), otel.GetMeterProvider()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	refused := 1000 - allowed(t, newRates(1), newUser())
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	sum := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64])
	if got := sum.DataPoints[0].Value; got != int64(refused) {
		t.Errorf("%d requests are counted as limited, want %d", got, refused)
	}
}
