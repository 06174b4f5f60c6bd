package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

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

// TestUnknownKeys: a flood of tokens with invented keys makes a bounded number of
// requests to the issuer. It refuses no valid token: those of known keys count at once,
// and those of a new key after seconds, in which the answer is UNAVAILABLE.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		invented := make([]string, 100)
		for i := range invented {
			invented[i] = w.forge(t, jose.HS256, []byte("0123456789abcdef0123456789abcdef"), map[jose.HeaderKey]any{"kid": fmt.Sprint(i)})
			// The algorithm is taken from the header before the key is looked for.
			invented[i] = strings.Replace(invented[i], encodedHeader("HS256", i), encodedHeader("RS256", i), 1)
		}
		before := w.requests.Load()
		flood, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		defer stop()
		var clients sync.WaitGroup
		var unavailable, unauthenticated atomic.Int64
		for i := range 2 * maxWaiting {
			clients.Go(func() {
				for flood.Err() == nil {
					switch err := w.ask(t.Context(), invented[i%len(invented)]); codeOf(err) {
					case problem.CodeUnavailable:
						unavailable.Add(1)
					case problem.CodeUnauthenticated:
						unauthenticated.Add(1)
					default:
						t.Errorf("an invented key: %v", err)
					}
					time.Sleep(time.Second)
				}
			})
		}
		known := w.mint(t)
		time.Sleep(time.Minute)
		if err := w.issuer.Rotate(); err != nil {
			t.Fatal(err)
		}
		rotated, fresh := time.Now(), w.mint(t)
		for w.ask(t.Context(), fresh) != nil {
			if time.Since(rotated) > 15*time.Second {
				t.Fatal("a new key is not known after 15 s")
			}
			time.Sleep(100 * time.Millisecond)
		}
		for flood.Err() == nil {
			asked := time.Now()
			if err := w.ask(t.Context(), known); err != nil || time.Since(asked) > 0 {
				t.Errorf("a known key after %s: %v", time.Since(asked), err)
			}
			time.Sleep(time.Second)
		}
		clients.Wait()
		fetches := (w.requests.Load() - before) / perFetch
		t.Logf("%d fetches; %d answers UNAVAILABLE, %d UNAUTHENTICATED", fetches, unavailable.Load(), unauthenticated.Load())
		if fetches > 5+18+2 { // the burst, six a minute, and what both issuers have without a flood
			t.Errorf("%d fetches in three minutes", fetches)
		}
		if unauthenticated.Load() == 0 || unavailable.Load() == 0 {
			t.Error("want both answers")
		}
	})
}

func encodedHeader(alg string, kid int) string {
	return segment(fmt.Sprintf(`{"alg":%q,"kid":%q}`, alg, fmt.Sprint(kid)))
}

// Clients keep on sending a token that has ended, or is for somebody else. They must not
// make requests to the issuer.
func TestTokensThatCannotBeValidAskForNoKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		tokens := []string{
			w.sign(t, map[string]any{"exp": 1}), w.sign(t, map[string]any{"aud": "other"}),
			w.forge(t, jose.HS256, []byte("0123456789abcdef0123456789abcdef"), map[jose.HeaderKey]any{"kid": "unknown"}),
		}
		if err := w.issuer.Rotate(); err != nil {
			t.Fatal(err)
		}
		w.issuer.Revoke()
		time.Sleep(revokedFor)
		before := w.requests.Load()
		for range 100 {
			for _, token := range tokens {
				if err := w.ask(t.Context(), token); codeOf(err) != problem.CodeUnauthenticated {
					t.Fatal(err)
				}
			}
		}
		if asked := w.requests.Load() - before; asked != 0 {
			t.Errorf("%d requests to the issuer", asked)
		}
	})
}

// TestTheIssuerHangs: a request waits for two seconds, or as long as its client does, and
// not more than 40 wait at once.
func TestTheIssuerHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hangs.Store(true)
		w.run(t)
		token := w.mint(t)
		asked := time.Now()
		var waited, refused atomic.Int64
		var clients sync.WaitGroup
		for range 100 {
			clients.Go(func() {
				err := w.ask(t.Context(), token)
				if codeOf(err) != problem.CodeUnavailable || time.Since(asked) > 2*time.Second {
					t.Errorf("after %s: %v", time.Since(asked), err)
				}
				if time.Since(asked) > 0 {
					waited.Add(1)
				} else {
					refused.Add(1)
				}
			})
		}
		clients.Wait()
		if waited.Load() != 40 || refused.Load() != 60 {
			t.Errorf("%d waited, %d were refused at once", waited.Load(), refused.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.ask(ctx, token); codeOf(err) != problem.CodeTimeout {
			t.Errorf("a client that waits for a second: %v", err)
		}
	})
}

// TestARequestWaitsForItsOwnFetch: the issuer begins to sign with a new key while a fetch
// is under way that has the old keys already.
func TestARequestWaitsForItsOwnFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.auth.services = nil
		asked := make(chan error, 1)
		w.answered = func(r *http.Request) {
			if r.URL.Path == discoveryPath || w.requests.Load() > perFetch {
				return
			}
			if err := w.issuer.Rotate(); err != nil {
				t.Error(err)
			}
			fresh := w.mint(t)
			go func() { asked <- w.ask(t.Context(), fresh) }()
			time.Sleep(time.Second)
		}
		w.run(t)
		if err := <-asked; err != nil {
			t.Error(err)
		}
	})
}

func TestAnIssuerThatComesBackIsAskedWithoutARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.down.Store(true)
		w.run(t)
		time.Sleep(time.Minute)
		w.down.Store(false)
		time.Sleep(retries.Cap + time.Second)
		before := w.requests.Load()
		if err := w.ask(t.Context(), w.mint(t)); err != nil || w.requests.Load() != before {
			t.Errorf("%v after %d requests", err, w.requests.Load()-before)
		}
	})
}

// The log of an issuer without a usable key says what is wrong with it.
func TestAnIssuerWithoutUsableKeys(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := slog.New(slog.NewTextHandler(&log, nil))
	k := newKeys(source{issuer: "https://issuer.example"}, s)
	k.store(t.Context(), nil, time.Now())
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "ES256") {
		t.Errorf("log %q", log.String())
	}
}
