package consistency

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/notify"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// look is a Projection.
type look func(ctx context.Context, aggregates []Position) ([]Position, error)

func (l look) Positions(ctx context.Context, aggregates []Position) ([]Position, error) {
	return l(ctx, aggregates)
}

// instance is a process with waiters on a database.
func instance(t *testing.T, db *pgtest.DB, l look) *Waiters {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	w := NewWaiters(10, l, notify.New(db.Pool(t, db.URL), "", "test", log))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, log, func() {}) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return w
}

// patience ends a test that would otherwise hang.
const patience = 2 * time.Minute

// After another instance's commit this one reads the aggregates that moved, and no other.
// A poll reads all aggregates, so the poll does not end this wait.
func TestAnotherInstanceNotifies(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var mu sync.Mutex
	looked, moved := map[string]int{}, false
	here := instance(t, db, func(_ context.Context, aggregates []Position) (found []Position, err error) {
		mu.Lock()
		defer mu.Unlock()
		key := aggregates[0].Key()
		if len(aggregates) > 1 {
			key = "everything"
		}
		looked[key]++
		if moved && key == "v/moves" {
			found = append(found, at("v", "moves", 2))
		}
		return found, nil
	})
	there := instance(t, db, func(context.Context, []Position) ([]Position, error) { return nil, nil })
	pgtest.Until(t, "both hear", func() bool { return here.notifier.Connected() && there.notifier.Connected() })
	// A poll at the very moment may take the first look along.
	has := func(key string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return looked[key]+looked["everything"] > 0
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	still := here.begin(ctx, at("v", "stays", 2))
	pgtest.Until(t, "the one that stays is looked at", has("v/stays"))
	ended := here.begin(ctx, at("v", "moves", 2))
	pgtest.Until(t, "the one that moves is looked at", has("v/moves"))
	mu.Lock()
	moved = true
	mu.Unlock()
	// A poll at the very moment may take this look along as well: tell it again.
	pgtest.Until(t, "the one that moves is woken by the other instance", func() bool {
		there.Notify(t.Context(), at("v", "moves", 0))
		select {
		case r := <-ended:
			if !r.reached || r.err != nil {
				t.Errorf("not woken by the other instance: %+v; looked at %v", r, looked)
			}
			return true
		default:
			return false
		}
	})
	cancel()
	if r := <-still; r.reached {
		t.Errorf("what did not move is reached: %+v", r)
	}
}
