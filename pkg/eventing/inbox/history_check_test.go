package inbox

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	records "example.com/lockstep/internal/history"
	"example.com/lockstep/pkg/eventing"
)

// judge checks everything that happened against the promises, the read model and its
// counters at the end included.
func (h *history) judge(t *testing.T) {
	t.Helper()
	committed := h.committed(t)
	records.Require(t, slices.Concat(h.happened, committed, h.foundLost(t, committed), h.ends(t)))
	h.judgeFaults(t)
	if t.Failed() {
		t.Logf("in history %s, after %d rounds", h.name, h.rounds)
	}
}

// committed are the records that the consumers' transactions have committed.
func (h *history) committed(t *testing.T) []records.Record {
	t.Helper()
	rows, _ := h.db.Query(t.Context(), `SELECT record FROM happened WHERE record->>'aggregate' LIKE $1 ORDER BY n`, h.name+"-%")
	found, err := pgx.CollectRows(rows, pgx.RowTo[records.Record])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// foundLost are the events that the consumer has acknowledged without applying them, since
// the owner has lost them.
func (h *history) foundLost(t *testing.T, committed []records.Record) (found []records.Record) {
	t.Helper()
	settled := map[string]bool{}
	for _, r := range committed {
		settled[r.Event] = settled[r.Event] || r.Kind == records.Effect
	}
	for _, l := range h.lives {
		for _, e := range l.lost {
			if h.isDone(t, e) && !settled[e.ID.String()] {
				found = append(found, recordOf(records.Effect, e))
			}
		}
	}
	return found
}

func (h *history) isDone(t *testing.T, e eventing.Event) bool {
	t.Helper()
	return h.count(t, `SELECT count(*) FROM inbox WHERE consumer = $1 AND event_id = $2 AND status = 'done'`, subscription, e.ID) == 1
}

// ends are the owner's state and that of the read model, of which each counter is
// an aggregate too.
func (h *history) ends(t *testing.T) (ends []records.Record) {
	t.Helper()
	shelves := map[string]int64{}
	for _, l := range h.lives {
		ends = append(ends, l.last().record(records.Owner))
		if !l.last().Deleted {
			shelves[l.last().Shelf]++
		}
	}
	for id, n := range shelves {
		ends = append(ends, records.Record{Kind: records.Owner, Aggregate: id, State: fmt.Sprint(n)})
	}
	rows, _ := h.db.Query(t.Context(), `SELECT id, epoch, version, deleted, shelf, label, event_id, at FROM item WHERE id LIKE $1`, h.name+"-%")
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		// A new epoch makes no event: its number is no part of a row that has not changed since.
		if last := h.lives[i.ID].last(); i.EventID == last.EventID && i.Version == last.Version {
			i.Epoch = last.Epoch
		}
		ends = append(ends, i.record(records.Copy))
	}
	rows, _ = h.db.Query(t.Context(), `SELECT id, items FROM shelf WHERE id LIKE $1 AND items <> 0`, h.name+"-%")
	var id string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		ends = append(ends, records.Record{Kind: records.Copy, Aggregate: id, State: fmt.Sprint(n)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return ends
}

func (i item) record(kind records.Kind) records.Record {
	return records.Record{Kind: kind, Aggregate: i.ID, Epoch: i.Epoch, Version: i.Version, State: i.String()}
}
