package outbox

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// An event of an epoch that has ended is refused, whether the process has noticed the new
// one or not, in a call for one event and in a call for many.
func TestAppendTakesThePresentEpochOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	epoch := NewEpoch(b.db)
	present := func(want int64) {
		t.Helper()
		if got, err := epoch.Present(t.Context()); err != nil || got != want {
			t.Errorf("epoch %d, %v; want %d", got, err, want)
		}
	}
	present(eventing.FirstEpoch)
	b.append(t, "a", 1, 2)
	const next = 1_795_000_000
	pgtest.Exec(t, b.db, `INSERT INTO outbox_epochs (epoch, actor, why) VALUES ($1, 'test', '')`, int64(next))
	in := func(epoch int64, e eventing.Event) eventing.Event {
		e.Epoch = epoch
		return e
	}
	for name, events := range map[string][]eventing.Event{
		"one event":        {event("a", 3)},
		"several":          {event("a", 3), event("b", 1)},
		"mixed":            {in(next, event("a", 3)), event("a", 4)},
		"of a later epoch": {in(next+1, event("a", 3))},
	} {
		if err := b.appendAll(t, events...); !errors.Is(err, ErrEpochEnded) {
			t.Errorf("%s: %v; want that the epoch has ended", name, err)
		}
	}
	present(eventing.FirstEpoch)
	epoch.Forget()
	present(next)
	if err := b.appendAll(t, in(next, event("a", 3)), in(next, event("a", 4)), in(next, event("b", 1))); err != nil {
		t.Error(err)
	}
	if err := b.appendAll(t, in(next, event("b", 2))); err != nil {
		t.Error(err)
	}
	rows, _ := b.db.Query(t.Context(), `SELECT epoch FROM outbox ORDER BY aggregate_id, version`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	want := []int64{eventing.FirstEpoch, eventing.FirstEpoch, next, next, next, next}
	if err != nil || len(got) != len(want) {
		t.Fatalf("epochs %v, %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("epochs %v, want %v", got, want)
			break
		}
	}
}
