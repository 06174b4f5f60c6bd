package auth

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/internal/problem"
)

// The times in these tests are of a bubble, in which they pass at once.

const (
	// revokedFor is the promise: so long is a key accepted that the issuer has removed.
	revokedFor = 5 * time.Minute
	// perFetch requests go to the issuer.
	perFetch = 2
)

// TestRotationUnderLoad: keys come and go while 8 clients use new tokens.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		first := w.mint(t)
		var clients sync.WaitGroup
		var asked atomic.Int64
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		for range 8 {
			clients.Go(func() {
				for ctx.Err() == nil {
					if err := w.ask(t.Context(), w.mint(t)); err != nil {
						t.Errorf("a valid token after %d: %v", asked.Load(), err)
						return
					}
					asked.Add(1)
					time.Sleep(time.Second)
				}
			})
		}
		for ctx.Err() == nil {
			time.Sleep(70 * time.Second)
			w.issuer.Revoke() // the key before this one
			if err := w.issuer.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
		clients.Wait()
		if asked.Load() < 4_000 {
			t.Errorf("only %d tokens", asked.Load())
		}
		if err := w.ask(t.Context(), first); codeOf(err) != problem.CodeUnauthenticated {
			t.Errorf("the first key: %v, want UNAUTHENTICATED", err)
		}
	})
}

// No request asks for new keys here: only time shows that a key is gone.
func TestARemovedKeyIsRefusedInTime(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Second, 3 * time.Minute, 4*time.Minute + 15*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := started(t)
			token := w.mint(t)
			time.Sleep(after)
			if err := w.issuer.Rotate(); err != nil {
				t.Fatal(err)
			}
			w.issuer.Revoke()
			removed := time.Now()
			for w.ask(t.Context(), token) == nil {
				if time.Since(removed) > revokedFor {
					t.Fatalf("removed after %s: accepted for more than %s", after, revokedFor)
				}
				time.Sleep(time.Second)
			}
			if err := w.ask(t.Context(), token); codeOf(err) != problem.CodeUnauthenticated {
				t.Errorf("%v, want UNAUTHENTICATED", err)
			}
			if err := w.ask(t.Context(), w.mint(t)); err != nil {
				t.Errorf("the new key: %v", err)
			}
		})
	}
}

func TestTheIssuerIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		token := w.mint(t)
		w.down.Store(true)
		began := time.Now()
		if err := w.issuer.Rotate(); err != nil {
			t.Fatal(err)
		}
		fresh := w.mint(t)
		accepted := began
		for time.Since(began) < 2*time.Hour {
			if err := w.ask(t.Context(), token); err == nil {
				accepted = time.Now()
			} else if codeOf(err) != problem.CodeUnavailable {
				t.Fatalf("a known key: %v", err)
			}
			if err := w.ask(t.Context(), fresh); codeOf(err) != problem.CodeUnavailable || problem.From(err).RetryAfter == 0 {
				t.Fatalf("a key that cannot be fetched: %v, want UNAVAILABLE and when to come again", err)
			}
			time.Sleep(time.Second)
		}
		if lived := accepted.Sub(began); lived < 10*time.Minute || lived > time.Hour {
			t.Errorf("known keys live for %s", lived)
		}
		w.down.Store(false)
		time.Sleep(retries.Cap + fetchTime)
		for _, token := range []string{token, fresh} {
			if err := w.ask(t.Context(), token); err != nil {
				t.Errorf("the issuer is back: %v", err)
			}
		}
	})
}

// TestStartWithoutAnIssuer: the requests with a token are answered UNAVAILABLE, the others
// are served, and the tokens count as soon as the issuer is there.
func TestStartWithoutAnIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.down.Store(true)
		w.run(t)
		token := w.mint(t)
		for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(time.Second) {
			if err := w.ask(t.Context(), token); codeOf(err) != problem.CodeUnavailable || problem.From(err).RetryAfter == 0 {
				t.Fatalf("%v, want UNAVAILABLE", err)
			}
			if p, err := w.auth.Principal(t.Context(), nil); err != nil || p.Kind != Anonymous {
				t.Fatalf("without a token: %v", err)
			}
		}
		if n := w.requests.Load(); n > 5+30+2*5*4 { // the burst, six a minute, and each issuer's retries
			t.Errorf("%d requests to two issuers that were away for five minutes", n)
		}
		w.down.Store(false)
		time.Sleep(retries.Cap + fetchTime)
		if err := w.ask(t.Context(), token); err != nil {
			t.Errorf("the issuer is there: %v", err)
		}
	})
}

// It sets the process's meter provider, so it must not run in parallel with other tests.
func TestTheAgeOfKeysIsShown(t *testing.T) {
	reader := metric.NewManualReader()
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.down.Store(true)
		w.run(t)
		ages := func(after time.Duration) (oldest float64) {
			time.Sleep(after)
			var collected metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &collected); err != nil {
				t.Fatal(err)
			}
			shown := map[string]bool{}
			for _, scope := range collected.ScopeMetrics {
				for _, m := range scope.Metrics {
					if gauge, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == "auth.keys.age" {
						for _, point := range gauge.DataPoints {
							of, _ := point.Attributes.Value("identity")
							shown[of.AsString()], oldest = true, max(oldest, point.Value)
						}
					}
				}
			}
			if !shown["users"] || !shown["services"] {
				t.Errorf("ages of %v, want users and services", shown)
			}
			return oldest
		}
		if age := ages(2 * time.Minute); age != 120 {
			t.Errorf("%v s without keys for two minutes", age)
		}
		w.down.Store(false)
		if age := ages(time.Hour); age > refreshMost.Seconds()+fetchTime.Seconds() {
			t.Errorf("%v s while the issuer answers", age)
		}
		w.down.Store(true)
		if age := ages(10 * time.Minute); age < 600 {
			t.Errorf("%v s after ten minutes without the issuer", age)
		}
	})
}

// The log of an issuer without a usable key says what is wrong with it.
func TestAnIssuerWithoutUsableKeys(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := slog.New(slog.NewTextHandler(&log, nil))
	k := newKeys(source{issuer: "https://issuer.example"}, make(chan struct{}, 1), s)
	public := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public()
	nameless, err := jose.JSONWebKey{Key: public, Algorithm: string(jose.EdDSA)}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, keys := range [][]json.RawMessage{nil, {nameless}} {
		log.Reset()
		k.store(t.Context(), usable(keys), time.Now())
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "ES256") {
			t.Errorf("%d keys: log %q", len(keys), log.String())
		}
	}
}
