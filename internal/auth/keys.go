package auth

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// refreshLeast and refreshMost bound the pause between two fetches. A fetch and the limiter's
	// pause take some more time. In total, a key is accepted for at most five minutes after the
	// issuer has removed it.
	refreshLeast, refreshMost = 4 * time.Minute, 270 * time.Second
	// keysLife is how long keys stay in use while the issuer cannot be asked. Tokens live for about an
	// hour, too, and no user gets a new one meanwhile.
	keysLife = time.Hour
	// fetchTime bounds one fetch, which makes two requests.
	fetchTime = 10 * time.Second
	// waitTime bounds the wait of a request whose token names an unknown key.
	waitTime = 2 * time.Second
	// maxWaiting is how many requests may wait at once because their tokens name unknown keys, of all
	// issuers of an Authenticator together. A stranger can choose the key id. The limit is a quarter of
	// the 80 requests that an instance of video gets at once. Requests with known keys have the rest.
	maxWaiting = 20
)

// unknownKeys returns a limiter for the fetches that requests with unknown keys cause. It allows
// five such fetches at once, and then six a minute.
func unknownKeys() *rate.Limiter { return rate.NewLimiter(rate.Every(10*time.Second), 5) }

// retries sets the pause between two fetches while the issuer cannot be asked.
var retries = backoff.Policy{Base: time.Second, Cap: 30 * time.Second}

var (
	errUnknownKey = errors.New("the issuer has no key of that id")
	errNotFetched = errors.New("the keys were not fetched in time")
	errBusy       = errors.New("too many requests wait for keys")
)

// keys holds the public keys of one issuer. One goroutine fetches the keys every few minutes. It
// also fetches them when a token names an unknown key, because an issuer may sign with a new key at
// once.
type keys struct {
	source  source
	log     *slog.Logger
	current atomic.Pointer[keySet]
	fresh   atomic.Bool // whether the last fetch has succeeded
	limit   *rate.Limiter
	places  chan struct{} // one for each waiting request, shared with the other issuers

	mu     sync.Mutex
	next   *round
	wanted chan struct{} // full while a request waits for next
}

// keySet has the keys by id. asOf is when the fetch of these keys began.
type keySet struct {
	byID map[string]jose.JSONWebKey
	asOf time.Time
}

// round is one fetch. A request joins a round before the round's fetch begins, so the result is
// newer than the request.
type round struct {
	done chan struct{}
	err  error // set before done closes
}

func newRound() *round { return &round{done: make(chan struct{})} }

func newKeys(from source, places chan struct{}, log *slog.Logger) *keys {
	return &keys{
		source: from, log: log.With("issuer", from.issuer), limit: unknownKeys(),
		places: places, next: newRound(), wanted: make(chan struct{}, 1),
	}
}

// find returns the key with that id. If the issuer was asked and does not have the key, the error
// is UNAUTHENTICATED. If no fetch has answered in time, the error depends on the last fetch. If the
// last fetch succeeded, too many requests name unknown keys, and the error is RESOURCE_EXHAUSTED.
// If the last fetch failed, the issuer cannot be asked, and the error is UNAVAILABLE. The codes differ
// because clients can cause RESOURCE_EXHAUSTED as they like, and cannot cause UNAVAILABLE. So
// RESOURCE_EXHAUSTED raises no alarm and logs no line at WARN.
func (k *keys) find(ctx context.Context, id string) (jose.JSONWebKey, error) {
	if key, ok := k.known(id); ok {
		return key, nil
	}
	err := k.awaitFetch(ctx)
	if key, ok := k.known(id); ok {
		return key, nil
	}
	switch {
	case err == nil:
		return jose.JSONWebKey{}, Unauthenticated(errUnknownKey)
	case ctx.Err() != nil:
		return jose.JSONWebKey{}, ctx.Err()
	case k.fresh.Load():
		return jose.JSONWebKey{}, notNow(problem.CodeTooMany, err)
	}
	return jose.JSONWebKey{}, notNow(problem.CodeUnavailable, err)
}

func (k *keys) known(id string) (jose.JSONWebKey, bool) {
	set := k.current.Load()
	if set == nil || time.Since(set.asOf) > keysLife {
		return jose.JSONWebKey{}, false
	}
	key, ok := set.byID[id]
	return key, ok
}

// awaitFetch waits for the end of a fetch that begins after the call.
func (k *keys) awaitFetch(ctx context.Context) error {
	select {
	case k.places <- struct{}{}:
		defer func() { <-k.places }()
	default:
		return errBusy
	}
	joined := k.join()
	timer := time.NewTimer(waitTime)
	defer timer.Stop()
	select {
	case <-joined.done:
		return joined.err
	case <-timer.C:
		return errNotFetched
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *keys) join() *round {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case k.wanted <- struct{}{}:
	default: // another request wants the same round
	}
	return k.next
}

func (k *keys) begin() *round {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.wanted:
	default:
	}
	started := k.next
	k.next = newRound()
	return started
}

func (k *keys) run(ctx context.Context) {
	failures := 0
	for {
		started := k.begin()
		started.err = k.fetch(ctx)
		k.fresh.Store(started.err == nil)
		close(started.done)
		if ctx.Err() != nil {
			return
		}
		pause := refreshLeast + rand.N(refreshMost-refreshLeast)
		if started.err == nil {
			failures = 0
		} else {
			failures++
			pause = retries.Delay(failures)
			k.log.WarnContext(ctx, "the issuer's keys cannot be fetched", "failures", failures, "error", started.err)
		}
		if !k.rest(ctx, pause) {
			return
		}
	}
}

// rest returns after the pause, or earlier if a request waits and the limit allows a fetch. It
// reports whether ctx is still alive.
func (k *keys) rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-k.wanted:
		return k.limit.Wait(ctx) == nil
	case <-ctx.Done():
		return false
	}
}

func (k *keys) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	began := time.Now()
	byID, err := k.source.fetch(ctx)
	if err != nil {
		return err
	}
	k.store(ctx, byID, began)
	return nil
}

func (k *keys) store(ctx context.Context, byID map[string]jose.JSONWebKey, began time.Time) {
	if len(byID) == 0 {
		k.log.WarnContext(ctx, "the issuer has no key that signs with RS256, PS256, ES256 or EdDSA: no token is valid")
	}
	k.current.Store(&keySet{byID, began})
}

// notNow returns the answer to a token that cannot be verified now. The answer is not logged at
// WARN. Each failed fetch is already logged, and strangers choose how many requests there are.
func notNow(code problem.Code, cause error) error {
	p := problem.New(code, "", "The token cannot be verified at the moment.")
	p.RetryAfter, p.Cause, p.Logged = time.Second, cause, true
	return p
}
