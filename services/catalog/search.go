package catalog

import (
	"context"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing/consistency"
)

const (
	// maxSearches is how many searches may run or wait for their turn. A search that waits costs
	// only its request.
	maxSearches = 1_000
	// searchTime bounds a search, including its wait for a turn. It is below the limit of the
	// database role, because the error of that limit says less.
	searchTime = 10 * time.Second
)

var errTooManySearches = fmt.Errorf("%w: too many searches", consistency.ErrBusy)

// searches bounds the searches by title. Without the trigram index, a search reads every video if
// no title matches. So only half of the connections may be in searches, and other reads find a
// connection.
type searches struct{ places, turns chan struct{} }

func newSearches(connections int32) searches {
	return searches{places: make(chan struct{}, maxSearches), turns: make(chan struct{}, max(1, connections/2))}
}

// do calls read. If q is a search, do first waits for the turn of q.
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
