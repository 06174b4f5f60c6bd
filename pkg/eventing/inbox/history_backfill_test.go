package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing"
)

// page is a part of the owner's items that was read at asOf, and is written at any later
// time.
type page struct {
	asOf time.Time
	rows []item
}

// backfill lets half of the histories begin without their older events: those were
// published before there was a subscription. A page of each item is read after that
// begin. Other pages are from any time, as a replica that lags answers, or as they are
// written once more after a kill.
func (h *history) backfill() {
	if h.rnd.IntN(2) == 0 {
		return
	}
	var end time.Time
	for _, l := range h.lives {
		if l.next().After(end) {
			end = l.next()
		}
	}
	h.subscribed = h.between(epochStart, end)
	h.pending = slices.DeleteFunc(h.pending, func(e eventing.Event) bool { return !h.receives(e) })
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(h.lives)), 1+h.rnd.IntN(2)) {
		h.read(h.between(h.subscribed, end), end, ids...)
		for h.rnd.IntN(2) == 0 {
			h.read(h.between(epochStart, end), end, ids...)
		}
	}
	h.rnd.Shuffle(len(h.pages), func(i, j int) { h.pages[i], h.pages[j] = h.pages[j], h.pages[i] })
}

// receives reports whether e was published after there was a subscription.
func (h *history) receives(e eventing.Event) bool { return !e.OccurredAt.Before(h.subscribed) }

func (h *history) between(from, until time.Time) time.Time {
	return from.Add(time.Duration(h.rnd.Int64N(int64(until.Sub(from)) + 1)))
}

// read reads a page. One that was read at the end may be much younger than the last event.
func (h *history) read(asOf, end time.Time, ids ...string) {
	if h.rnd.IntN(3) == 0 && !asOf.Before(h.subscribed) {
		asOf = end.Add(time.Hour)
	}
	p := page{asOf: asOf}
	for _, id := range ids {
		if i, ok := h.lives[id].at(asOf); ok {
			p.rows = append(p.rows, i)
		}
	}
	h.pages = append(h.pages, p)
}

// fill writes a page into rows, and reports whether it must be written once more: it was
// killed at a step, or other transactions had its rows.
func (h *history) fill(t *testing.T, p page, rows Rows[item], at func(step int) error) (again bool) {
	t.Helper()
	moved := 0
	err := pgx.BeginFunc(t.Context(), h.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '100ms'`)
		if err == nil {
			moved, err = adoptRecorded(t.Context(), tx, AdvanceChanges[item], rows, p.asOf, p.rows...)
		}
		return cmp.Or(err, at(beforeCommit))
	})
	pg, locked := errors.AsType[*pgconn.PgError](err)
	switch {
	case locked && pg.Code == "55P03", errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case err != nil:
		t.Errorf("fill: %v", err)
	}
	h.met.pages.Add(1)
	h.met.filled.Add(int64(moved))
	return false
}

// fillNext writes the next page, if there is one, while events are applied. death is the
// step at which the process dies.
func (h *history) fillNext(t *testing.T, p page, death int) (left []page) {
	t.Helper()
	at := func(step int) error {
		if step == death {
			return fmt.Errorf("died: %w", io.ErrUnexpectedEOF)
		}
		return nil
	}
	if h.fill(t, p, mortalItems{at: at}, at) {
		return []page{p}
	}
	return nil
}

// newEpoch lets one in four owners begin an epoch, although it has lost nothing: it has all
// items in it at once, and the read model gets to know that by a page, a repair or an event.
func (h *history) newEpoch(t *testing.T, id string, l *life) {
	t.Helper()
	if l.now().Epoch > 1 || h.rnd.IntN(4) > 0 {
		return
	}
	h.met.epochs.Add(1)
	l.begin(l.last())
	h.goOn(t, id, l, h.rnd.IntN(3))
}
