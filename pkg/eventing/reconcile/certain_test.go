package reconcile

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// A difference is certain only if no event that is on its way can remove it. Each step is a look at the
// same row, with the times in seconds from now on.
func TestCertain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, looks) // in which no time passes
}

func looks(t *testing.T) {
	t.Helper()
	const grace = 90 * time.Second
	now, e1, e2 := time.Now(), uuid.New(), uuid.New()
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	row := func(version int64, seconds int, event uuid.UUID) Row {
		return Row{Version: version, Epoch: 1, At: at(seconds), EventID: event}
	}
	ofEpoch := func(epoch int64, r Row) Row {
		r.Epoch = epoch
		return r
	}
	type look struct {
		reader, owner Row
		asOf          int
		want          bool
	}
	const day, hour = 86_400, 3600
	for name, tc := range map[string]struct {
		kind  Kind
		looks []look
	}{
		"extra, and old":                    {Extra, []look{{row(1, -hour, e1), Row{}, 0, true}}},
		"extra, younger than the answer":    {Extra, []look{{row(1, -29, e1), Row{}, 0, false}, {row(1, -29, e1), Row{}, 2, true}}},
		"extra, from the future":            {Extra, []look{{row(1, day, e1), Row{}, 0, true}}},
		"extra, by a clock that is ahead":   {Extra, []look{{row(1, 20, e1), Row{}, 0, false}, {row(1, 20, e1), Row{}, 51, true}}},
		"ahead, and old":                    {Ahead, []look{{row(3, -hour, e2), row(2, -hour, e1), 0, true}}},
		"ahead, younger than the answer":    {Ahead, []look{{row(3, -29, e2), row(2, -hour, e1), 0, false}}},
		"ahead, from the future":            {Ahead, []look{{row(3, day, e2), row(2, -hour, e1), 0, true}}},
		"changed, of the same event":        {Changed, []look{{row(2, 0, e1), row(2, 0, e1), 0, true}}},
		"changed, of unknown events":        {Changed, []look{{row(2, 0, uuid.Nil), row(2, 0, uuid.Nil), 0, false}}},
		"changed, and old":                  {Changed, []look{{row(2, -hour, e1), row(2, -hour, e2), 0, true}}},
		"changed, and the reader is young":  {Changed, []look{{row(2, -29, e1), row(2, -hour, e2), 0, false}}},
		"changed, and the owner is young":   {Changed, []look{{row(2, -hour, e1), row(2, -89, e2), 0, false}, {row(2, -hour, e1), row(2, -89, e2), 2, true}}},
		"changed, the reader of the future": {Changed, []look{{row(2, day, e1), row(2, -hour, e2), 0, true}}},
		"changed, the owner of the future": {Changed, []look{
			{row(2, -hour, e1), row(2, day, e2), 0, false}, {row(2, -hour, e1), row(2, day, e2), 90, false}, {row(2, -hour, e1), row(2, day, e2), 91, true},
		}},
		"changed, and the owner moves on": {Changed, []look{
			{row(2, -hour, e1), row(2, day, e2), 0, false}, {row(3, -hour, e1), row(3, day, e2), 91, false}, {row(3, -hour, e1), row(3, day, e2), 182, true},
		}},
		"behind, and old":               {Behind, []look{{row(1, -hour, e1), row(2, -91, e2), 0, true}}},
		"behind, and young":             {Behind, []look{{row(1, -hour, e1), row(2, -89, e2), 0, false}}},
		"behind an owner of the future": {Behind, []look{{row(1, -hour, e1), row(2, day, e2), 0, false}, {row(1, -hour, e1), row(2, day, e2), 91, true}}},
		"behind an owner that moves on": {Behind, []look{
			{row(1, -hour, e1), row(2, 0, e2), 0, false}, {row(1, -hour, e1), row(9, 60, e2), 60, false}, {row(1, -hour, e1), row(10, 91, e2), 91, true},
		}},
		"behind, and follows": {Behind, []look{
			{row(1, -hour, e1), row(2, 0, e2), 0, false}, {row(2, 60, e1), row(9, 60, e2), 60, false}, {row(2, 60, e1), row(10, 91, e2), 91, false},
		}},
		"missing, and old":   {Missing, []look{{Row{}, row(1, -91, e2), 0, true}}},
		"missing, and young": {Missing, []look{{Row{}, row(1, -89, e2), 0, false}, {Row{}, row(1, -89, e2), 2, true}}},
		"of a later epoch": {Ahead, []look{
			{ofEpoch(2, row(2, -hour, e1)), row(2, -hour, e1), 0, false}, {ofEpoch(2, row(2, -hour, e1)), row(2, -hour, e1), 30, false},
			{ofEpoch(2, row(2, -hour, e1)), row(2, -hour, e1), 31, true},
		}},
		"of a later epoch, and ahead": {Ahead, []look{{ofEpoch(2, row(3, -hour, e2)), row(2, -hour, e1), 0, true}}},
	} {
		s := &uncertainRow{}
		for i, l := range tc.looks {
			if got := s.certain(tc.kind, l.reader, l.owner, Answer{AsOf: at(l.asOf), Epoch: 1}, grace); got != l.want {
				t.Errorf("%s, look %d: %t, want %t", name, i+1, got, l.want)
			}
		}
		// An answer of an unknown time decides nothing, unless both rows are of one event.
		last := tc.looks[len(tc.looks)-1]
		want := tc.kind == Changed && last.reader.EventID == last.owner.EventID && last.reader.EventID != uuid.Nil
		if got := s.certain(tc.kind, last.reader, last.owner, Answer{Epoch: 1}, grace); got != want {
			t.Errorf("%s, an answer of an unknown time: %t, want %t", name, got, want)
		}
	}
}
