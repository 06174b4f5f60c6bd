package catalog

import (
	"context"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing/consistency"
)

const (
	// maxSearches wait for their turn or have it; one that waits costs its request.
	maxSearches = 1_000
	// searchTime bounds a search, its wait for a turn included. It is below the limit
	// of the database role, because the error of that limit says less.
	searchTime = 10 * time.Second
)

var errTooManySearches = fmt.Errorf("%w: too many searches", consistency.ErrBusy)

// searches are those by title. Without the trigram index each reads every video if none
// matches, so only so few have a turn at once that other reads find a connection.
type searches struct{ places, turns chan struct{} }

func newSearches(connections int32) searches {
	return searches{places: make(chan struct{}, maxSearches), turns: make(chan struct{}, max(1, connections/2))}
}

// do calls read: at once, or in its turn if q is a search.
func (s searches) do(ctx context.Context, q Query, read func(context.Context) error) error {
	if q.Title == "" {
		return read(ctx)
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		return errTooManySearches
	}
	searching, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-searching.Done():
		if err := ctx.Err(); err != nil {
			return err // the caller's own deadline
		}
		return errTooManySearches
	}
	return read(searching)
}
