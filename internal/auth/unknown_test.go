package auth

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/problem"
)

// TestUnknownKeys: a flood of tokens with invented keys makes a bounded number of
// requests to the issuer. It refuses no valid token: those of known keys count at once,
// and those of a new key after seconds, in which the answer is RESOURCE_EXHAUSTED.
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
		var tooMany, unauthenticated atomic.Int64
		for i := range 2 * maxWaiting {
			clients.Go(func() {
				for flood.Err() == nil {
					err := w.ask(t.Context(), invented[i%len(invented)])
					switch codeOf(err) {
					case problem.CodeTooMany:
						tooMany.Add(1)
						if problem.From(err).RetryAfter == 0 {
							t.Error("an answer does not say when to come again")
						}
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
		t.Logf("%d fetches; %d answers RESOURCE_EXHAUSTED, %d UNAUTHENTICATED", fetches, tooMany.Load(), unauthenticated.Load())
		if fetches > 5+18+2 { // the burst, six a minute, and what both issuers have without a flood
			t.Errorf("%d fetches in three minutes", fetches)
		}
		if unauthenticated.Load() == 0 || tooMany.Load() == 0 {
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
			w.forge(t, jose.EdDSA, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), nil),
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
// not more than 20 wait at once, by both headers together.
func TestTheIssuerHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hangs.Store(true)
		w.run(t)
		token := w.sign(t, map[string]any{"aud": []string{issuer.Audience, serviceAudience}})
		asked := time.Now()
		var waited, refused atomic.Int64
		var clients sync.WaitGroup
		for i := range 100 {
			clients.Go(func() {
				ask := w.ask
				if i%2 == 1 {
					ask = w.askAsService
				}
				err := ask(t.Context(), token)
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
		if waited.Load() != 20 || refused.Load() != 80 {
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
