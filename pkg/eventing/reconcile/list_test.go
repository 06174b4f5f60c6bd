package reconcile_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/reconcile"
)

// A listing fits into a message, however long the rows are, and goes on at the row behind it.
func TestAListingOfLongRows(t *testing.T) {
	t.Parallel()
	p := newPair(t, 5)
	p.exec(t, `UPDATE app.owned SET body = repeat('x', 600000)`)
	type row struct {
		A, B uuid.UUID
		Body string
	}
	id := func(r row) string { return r.A.String() + ":" + r.B.String() }
	var all []string
	for from, lists := "", 0; lists == 0 || from != ""; lists++ {
		l, err := reconcile.List(t.Context(), p.owner.Table, "a, b, body", from, id)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Rows) != 1 {
			t.Fatalf("%d rows of 600 kB in one listing", len(l.Rows))
		}
		all, from = append(all, id(l.Rows[0])), l.Next
	}
	if len(all) != 5 || !slices.IsSorted(all) {
		t.Errorf("listed %v", all)
	}
}
