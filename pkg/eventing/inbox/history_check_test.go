package inbox

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
)

// check holds no version to have gone back, and no effect to have come twice.
func (h *history) check(t *testing.T) {
	t.Helper()
	for id, i := range h.items(t) {
		p := itemRows.Position(i)
		if h.reached[id].newerThan(p) && h.lives[id].fork == 0 {
			t.Errorf("%s round %d: %s went from %+v to %+v", h.name, h.rounds, id, h.reached[id], p)
		}
		h.reached[id] = p
	}
	var twice int
	err := h.db.QueryRow(t.Context(), `
		SELECT count(*) FROM handled h JOIN inbox i USING (event_id)
		 WHERE h.times > 1 AND i.aggregate_id LIKE $1`, h.name+"-%").Scan(&twice)
	if err != nil || twice > 0 {
		t.Errorf("%s round %d: %d events had their effect more than once (%v)", h.name, h.rounds, twice, err)
	}
}

func (h *history) items(t *testing.T) map[string]item {
	t.Helper()
	rows, _ := h.db.Query(t.Context(), `SELECT id, epoch, version, deleted, shelf, label, event_id, at FROM item WHERE id LIKE $1`, h.name+"-%")
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]item{}
	for _, i := range all {
		byID[i.ID] = i
	}
	return byID
}

// checkEnd holds the read model against the owner.
func (h *history) checkEnd(t *testing.T) {
	t.Helper()
	want, shelves := map[string]item{}, map[string]int64{}
	for id, l := range h.lives {
		want[id] = l.last()
		if !l.last().Deleted {
			shelves[l.last().Shelf]++
		}
	}
	if diff := gocmp.Diff(want, h.items(t)); diff != "" {
		t.Errorf("%s: read model differs from its owner (-owner +model)\n%s", h.name, diff)
	}
	rows, _ := h.db.Query(t.Context(), `SELECT id, items FROM shelf WHERE id LIKE $1 AND items <> 0`, h.name+"-%")
	got := map[string]int64{}
	var id string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error { got[id] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(shelves, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: counters differ from those of the owner's state (-owner +model)\n%s", h.name, diff)
	}
	var unsettled int
	err := h.db.QueryRow(t.Context(), `SELECT count(*) FROM inbox WHERE aggregate_id LIKE $1 AND status <> 'done'`, h.name+"-%").Scan(&unsettled)
	if err != nil || unsettled > 0 {
		t.Errorf("%s: %d inbox rows are not done (%v)", h.name, unsettled, err)
	}
}
