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
	// refreshMost and refreshLeast bound the time between two fetches. With what a fetch
	// takes, and the pause of a limited one, a key that the issuer has removed is accepted
	// for at most five minutes.
	refreshLeast, refreshMost = 4 * time.Minute, 270 * time.Second
	// keysLife is how long keys are used while the issuer cannot be asked. A token lives
	// for about an hour, too, and without its issuer there is no next one.
	keysLife = time.Hour
	// fetchTime bounds one fetch, which is two requests.
	fetchTime = 10 * time.Second
	// waitTime bounds the wait of a request whose key is not known.
	waitTime = 2 * time.Second
	// maxWaiting is how many such requests wait at once, for all issuers of an
	// Authenticator together, because a stranger chooses the header. It is a quarter of the
	// 80 requests that an instance of video gets at once: the other places are for requests
	// whose keys are known.
	maxWaiting = 20
)

// unknownKeys bounds the fetches that requests with unknown keys cause: five, and then
// six a minute.
func unknownKeys() *rate.Limiter { return rate.NewLimiter(rate.Every(10*time.Second), 5) }

// retries are between two fetches while the issuer cannot be asked.
var retries = backoff.Policy{Base: time.Second, Cap: 30 * time.Second}

var (
	errUnknownKey = errors.New("the issuer has no key of that id")
	errNotFetched = errors.New("the keys were not fetched in time")
	errBusy       = errors.New("too many requests wait for keys")
)

// keys are the public keys of one issuer. One goroutine fetches them: from time to time,
// and when a token names a key that is not known, since an issuer may sign with a new key
// at once.
type keys struct {
	source  source
	log     *slog.Logger
	current atomic.Pointer[keySet]
	fresh   atomic.Bool // the last fetch has succeeded
	limit   *rate.Limiter
	places  chan struct{} // of the requests that wait, for other issuers' keys too

	mu     sync.Mutex
	next   *round
	wanted chan struct{} // next has a request that waits for it
}

// keySet are the keys by id, as of the time at which their fetch began.
type keySet struct {
	byID map[string]jose.JSONWebKey
	asOf time.Time
}

// round is one fetch. A request joins it before it begins, so that its result is newer
// than the request.
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

// find returns the key of that id. A key that the issuer does not have is an error for
// the client, UNAUTHENTICATED, after the issuer was asked. While too many requests name
// such keys the error is RESOURCE_EXHAUSTED, and where the issuer cannot be asked now,
// UNAVAILABLE. The difference is for operators: clients cause the former as they like, and
// so it makes no alarm and no line at WARN.
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

// awaitFetch waits for a fetch that begins after its call.
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
	default: // another request of the same round has said so
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

// rest returns after the pause, or before if a request waits and the limit allows it. It
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

// notNow is the answer to a token that cannot be verified now. It makes no line at WARN:
// each failed fetch has made one, and strangers choose how many requests there are.
func notNow(code problem.Code, cause error) error {
	p := problem.New(code, "", "The token cannot be verified at the moment.")
	p.RetryAfter, p.Cause, p.Logged = time.Second, cause, true
	return p
}
