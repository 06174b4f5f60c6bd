package catalog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.com/lockstep/internal/auth"
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
// connection. One search of each user at a time runs or waits for a connection, so a user waits for
// one search of each other user at most, however many searches the others send.
type searches struct {
	places, turns chan struct{}

	mu    sync.Mutex
	users map[string]*userSearches // by auth.Principal.Scope
}

// userSearches are the searches of one user that run or wait.
type userSearches struct {
	turn  chan struct{} // has an element while one of them runs, or waits for one of searches.turns
	count int
}

func newSearches(connections int32) *searches {
	return &searches{
		places: make(chan struct{}, maxSearches), turns: make(chan struct{}, max(1, connections/2)), users: map[string]*userSearches{},
	}
}

// do calls read. If q is a search, do first waits for the turn of q.
func (s *searches) do(ctx context.Context, q Query, read func(context.Context) error) error {
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
	if q.Caller.Kind == auth.User { // other callers send the searches of many users
		user := q.Caller.Scope()
		own := s.join(user)
		defer s.leave(user)
		if err := takeTurn(ctx, searching, own.turn); err != nil {
			return err
		}
		defer func() { <-own.turn }()
	}
	if err := takeTurn(ctx, searching, s.turns); err != nil {
		return err
	}
	defer func() { <-s.turns }()
	return read(searching)
}

// takeTurn waits for one of turns until searching ends. searching is ctx with less time.
func takeTurn(ctx, searching context.Context, turns chan struct{}) error {
	select {
	case turns <- struct{}{}:
		return nil
	case <-searching.Done():
		if err := ctx.Err(); err != nil {
			return err // the caller's own deadline
		}
		return errTooManySearches
	}
}

// join adds a search to those of user, until leave is called.
func (s *searches) join(user string) *userSearches {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.users[user]
	if own == nil {
		own = &userSearches{turn: make(chan struct{}, 1)}
		s.users[user] = own
	}
	own.count++
	return own
}

func (s *searches) leave(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.users[user]
	own.count--
	if own.count == 0 {
		delete(s.users, user)
	}
}
