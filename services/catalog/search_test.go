package catalog

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

// While a lock keeps every search from ending, half of the connections are left to
// other reads, and no more searches wait than there are places.
func TestSearchesLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	if n := cap(f.service.searches.places); n != maxSearches {
		t.Errorf("there are %d places, want %d", n, maxSearches)
	}
	// Fewer: on a busy machine not all of those would have their turn within searchTime.
	const places, turnedAway = 50, 20
	f.service.searches.places = make(chan struct{}, places)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, f.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	lock, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(ctx, `LOCK TABLE video_projection IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}

	half := f.pool.Config().MaxConns / 2
	ended := make(chan error)
	for range places + turnedAway {
		go func() {
			_, err := f.service.List(ctx, Query{Caller: everyone, Title: "x"}, consistency.Requirement{})
			ended <- err
		}()
	}
	for range turnedAway {
		if p := problem.From(<-ended); p == nil || p.Reason != "TOO_MANY_SEARCHES" || p.RetryAfter == 0 {
			t.Errorf("a search without a place: %v", p)
		}
	}
	eventually(t, func() bool { return f.pool.Stat().AcquiredConns() == half })
	f.listsEngagements(ctx, t) // another read
	if err := lock.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	for range places {
		if err := <-ended; err != nil {
			t.Errorf("a search with a place: %v", err)
		}
	}
}

// A search gives back its place and its turn, however it ends, and takes no longer than searchTime.
func TestASearchGivesBackItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, q := newSearches(2), Query{Title: "x"} // with one turn
		atOnce := func(context.Context) error { return nil }
		for n := range 2 * maxSearches {
			if err := s.do(t.Context(), q, atOnce); err != nil {
				t.Fatalf("search %d: %v", n, err)
			}
		}
		began, hanging := time.Now(), make(chan error, 1)
		go func() {
			hanging <- s.do(t.Context(), q, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}()
		synctest.Wait()
		hasty, cancel := context.WithTimeout(t.Context(), searchTime/2)
		defer cancel()
		if err := s.do(hasty, q, atOnce); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errTooManySearches) {
			t.Errorf("a search behind it, until its caller's deadline: %v", err)
		}
		if err := s.do(t.Context(), q, atOnce); err != nil {
			t.Errorf("a search behind it, until its end: %v", err)
		}
		if err := <-hanging; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != searchTime {
			t.Errorf("a search that hangs: %v after %s", err, time.Since(began))
		}
		s.turns <- struct{}{}
		if err := s.do(t.Context(), q, atOnce); !errors.Is(err, errTooManySearches) {
			t.Errorf("a search that gets no turn: %v", err)
		}
		if n := len(s.places); n != 0 {
			t.Errorf("%d places are taken by no search", n)
		}
	})
}

// While a user has many searches, another user's search waits for one of them at most. The searches of callers
// that send those of many users do not wait for each other.
func TestAUserSearchesOnceAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSearches(4) // with two turns
		ctx, cancel := context.WithCancel(t.Context())
		var running atomic.Int64
		search := func(caller auth.Principal) {
			_ = s.do(ctx, Query{Title: "x", Caller: caller}, func(ctx context.Context) error {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				return ctx.Err()
			})
		}
		busy, other := auth.Principal{Kind: auth.User, User: uuid.New()}, auth.Principal{Kind: auth.User, User: uuid.New()}
		for range 20 {
			go search(busy)
		}
		synctest.Wait()
		if n := running.Load(); n != 1 {
			t.Errorf("%d searches of a user run, want 1", n)
		}
		ran := false
		if err := s.do(ctx, Query{Title: "x", Caller: other}, func(context.Context) error { ran = true; return nil }); err != nil || !ran {
			t.Errorf("the search of another user: %v, ran: %v", err, ran)
		}
		cancel()
		synctest.Wait()
		if n := len(s.users) + len(s.turns) + len(s.places); n != 0 {
			t.Errorf("%d users, turns and places are left", n)
		}
		ctx, cancel = context.WithCancel(t.Context())
		for range 20 {
			go search(everyone)
		}
		synctest.Wait()
		if n := running.Load(); n != 2 {
			t.Errorf("%d searches of everyone run, want 2", n)
		}
		cancel()
	})
}
