package catalog

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

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
