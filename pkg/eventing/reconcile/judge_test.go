package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// late is a replica: its answers are of a time before.
type late struct {
	*owner

	behind time.Duration
}

func (l *late) Part(ctx context.Context, d reconcile.Definition, from string) (reconcile.Part, error) {
	behind := l.behind
	p, err := l.owner.Part(ctx, d, from)
	p.AsOf = p.AsOf.Add(-behind)
	return p, err
}

func (l *late) Page(ctx context.Context, d reconcile.Definition, r reconcile.Range) (reconcile.Page, error) {
	behind := l.behind
	p, err := l.owner.Page(ctx, d, r)
	p.AsOf = p.AsOf.Add(-behind)
	return p, err
}

const (
	extraRow = `INSERT INTO app.copied SELECT gen_random_uuid(), gen_random_uuid(), '', NULL, 1, now(), now() - $1::interval, NULL, gen_random_uuid()`
	aheadRow = `UPDATE app.copied SET version = version + 1, updated_at = now() - $1::interval WHERE `
)

// Rows that are younger than the answer of a replica that lags are not lost.
func TestAReplicaThatLags(t *testing.T) {
	t.Parallel()
	p := newPair(t, 200)
	replica := &late{p.owner, 5 * time.Minute}
	p.Owner = replica
	p.exec(t, extraRow, "1 min")
	p.exec(t, aheadRow+some(9), "1 min")
	p.owner.after = func(call int) {
		if call == 5 { // after the digest, the lists and a look at a row
			replica.behind = 0
			p.exec(t, `DELETE FROM app.owned`)
			p.exec(t, `INSERT INTO app.owned SELECT `+columns+` FROM app.copied`)
		}
	}
	if found, unsettled := p.check(t, reconcile.Options{}); len(found) > 0 || unsettled > 0 {
		t.Errorf("%v differ, %d unsettled", found, unsettled)
	}
}

// A short grace period leaves the time after which the owner has lost a row.
func TestAShortGrace(t *testing.T) {
	t.Parallel()
	p := newPair(t, 200)
	p.exec(t, extraRow, "23 s")
	p.exec(t, aheadRow+some(9), "23 s")
	found, unsettled := p.check(t, reconcile.Options{Grace: time.Second})
	if len(found) != 2 || !strings.HasPrefix(found[0], "ahead ") || !strings.HasPrefix(found[1], "extra ") || unsettled > 0 {
		t.Errorf("%v differ, %d unsettled", found, unsettled)
	}
}

// A reader's event may be younger than the owner's answer. So a young row with another event than the owner's is
// looked at again, also with a short grace period.
func TestAYoungRowWithAnotherEvent(t *testing.T) {
	t.Parallel()
	p := newPair(t, 200)
	p.exec(t, `UPDATE app.copied SET updated_at = now(), last_event_id = gen_random_uuid() WHERE `+some(9))
	p.owner.after = func(call int) {
		if call == 3 { // after a look at the row: the owner has the event, too
			p.exec(t, `UPDATE app.owned o SET updated_at = c.updated_at, last_event_id = c.last_event_id FROM app.copied c WHERE (c.a, c.b) = (o.a, o.b)`)
		}
	}
	if found, unsettled := p.check(t, reconcile.Options{Grace: time.Second}); len(found) > 0 || unsettled > 0 {
		t.Errorf("%v differ, %d unsettled", found, unsettled)
	}
}

// A row whose owner has a time from the future, or an infinite one, is decided like any other,
// and not before its event had time to come.
func TestAnOwnersTimeFromTheFuture(t *testing.T) {
	t.Parallel()
	p := newPair(t, 200)
	p.exec(t, `UPDATE app.owned SET updated_at = CASE WHEN `+some(9)+` THEN timestamptz 'infinity' ELSE now() + interval '1 day' END,
		last_event_id = gen_random_uuid() WHERE `+some(9)+` OR `+some(29))
	if found, unsettled := p.check(t, reconcile.Options{Grace: time.Second}); len(found) != 2 || unsettled > 0 || !strings.HasPrefix(found[0], "changed ") {
		t.Errorf("%v differ, %d unsettled", found, unsettled)
	}
	p.owner.after = func(call int) {
		if call == 5 { // after a look at the rows: the events have come
			p.exec(t, `UPDATE app.copied c SET updated_at = o.updated_at, last_event_id = o.last_event_id FROM app.owned o WHERE (c.a, c.b) = (o.a, o.b)`)
		}
	}
	p.owner.calls = 0
	if found, unsettled := p.check(t, reconcile.Options{Grace: time.Second}); len(found) > 0 || unsettled > 0 {
		t.Errorf("after their events %v differ, %d unsettled", found, unsettled)
	}
}

// A check that reads many rows without a difference shows that it is alive.
func TestManyTombstones(t *testing.T) {
	t.Parallel()
	p := newPair(t, 200)
	p.exec(t, `INSERT INTO app.copied SELECT gen_random_uuid(), gen_random_uuid(), '', NULL, 1, now(), now(), now(), NULL FROM generate_series(1, $1::int)`, 3*reconcile.PartRows)
	found, _ := p.check(t, reconcile.Options{})
	if len(found) > 0 || len(p.passed) < 4 || slices.Max(p.passed[:3]) != p.Reader.Start() || p.rows != 200 {
		t.Errorf("%d rows, %d differ, passed %v", p.rows, len(found), p.passed)
	}
}

// ends ends its check after the first part, as the end of an instance does.
type ends struct {
	*pair

	stop context.CancelFunc
}

func (e ends) Passed(ctx context.Context, next string, rows int64) error {
	if rows > 0 {
		e.stop()
	}
	return e.pair.Passed(ctx, next, rows)
}

// A check that another instance continues judges the rows again that were uncertain.
func TestAContinuedCheckKeepsUncertainRows(t *testing.T) {
	t.Parallel()
	p := newPair(t, reconcile.PartRows+100)
	p.exec(t, aheadRow+some(9), "1 s")
	ctx, stop := context.WithCancel(t.Context())
	if _, err := p.Check(ctx, reconcile.Options{}, ends{p, stop}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	next := p.passed[len(p.passed)-1]
	p.exec(t, `UPDATE app.copied SET updated_at = now() - interval '1 h' WHERE `+some(9))
	if found, _ := p.check(t, reconcile.Options{From: next}); len(found) != 1 || next == p.Reader.Start() {
		t.Errorf("from %s on %v differ", next, found)
	}
}

// A row that was repaired, and has changed at the owner since, is no difference that is left.
func TestStillAfterAChange(t *testing.T) {
	t.Parallel()
	p := newPair(t, 200)
	p.exec(t, `UPDATE app.copied SET body = 'x' WHERE `+some(9)+` OR `+some(29))
	if found, _ := p.check(t, reconcile.Options{}); len(found) != 2 {
		t.Fatalf("%v differ", found)
	}
	p.exec(t, `UPDATE app.copied c SET body = (SELECT body FROM app.owned o WHERE (o.a, o.b) = (c.a, c.b)) WHERE `+some(9))
	id := pgtest.Value[string](t, p.admin, `SELECT a || ':' || b FROM app.owned WHERE `+some(29))
	p.exec(t, `UPDATE app.owned SET version = version + 1, body = 'y', updated_at = now(), last_event_id = gen_random_uuid()`)
	if left, err := p.Still(t.Context(), p.found); err != nil || len(left) != 1 || left[0].ID != id {
		t.Errorf("%v are left, %v", left, err)
	}
}

// A check whose owner is slow shows that it goes on, however long its looks at uncertain rows
// take.
func TestASlowOwner(t *testing.T) {
	t.Parallel()
	p := newPair(t, 100)
	p.exec(t, `UPDATE app.owned SET version = version + 1, updated_at = now()`)
	const look = 30 * time.Second // fake time
	synctest.Test(t, func(t *testing.T) {
		p.connect(t)
		signs, shown, most := 0, time.Now(), time.Duration(0)
		p.owner.before = func(call int) {
			backoff.Sleep(t.Context(), look, nil)
			if len(p.passed) > signs {
				signs, shown = len(p.passed), time.Now().Add(-look)
			}
			most = max(most, time.Since(shown))
			if call == 80 { // amid the looks
				p.exec(t, `UPDATE app.copied c SET version = o.version, updated_at = o.updated_at FROM app.owned o WHERE (c.a, c.b) = (o.a, o.b)`)
			}
		}
		found, unsettled := p.check(t, reconcile.Options{Grace: long})
		if len(found) > 0 || unsettled > 0 || p.owner.calls < 100 || most > 2*look {
			t.Errorf("%d differ, %d unsettled, %v without a sign in %d calls", len(found), unsettled, most, p.owner.calls)
		}
	})
}

// connect connects again within a bubble of fake time.
func (p *pair) connect(t *testing.T) {
	t.Helper()
	db, err := pgxpool.New(t.Context(), p.admin.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	p.admin = db
	p.owner.Table = reconcile.NewTable(db, "app.owned", []string{"a", "b"}, columns, `(SELECT max(epoch) FROM app.present)`)
	p.Reader = reconcile.NewTable(db, "app.copied", []string{"a", "b"}, columns+", epoch", reconcile.ColumnEpoch)
}

// The rate bounds the rows that are digested, and those that are listed because they differ.
func TestRate(t *testing.T) {
	t.Parallel()
	const perSecond, parts = 100, 3
	for name, tc := range map[string]struct {
		damage string
		reads  int // rows, besides those of the burst
	}{
		"digests": {`UPDATE app.copied SET body = 'wrong' WHERE ` + some(9), (parts - 1) * reconcile.PartRows},
		"lists":   {`UPDATE app.copied SET body = 'wrong'`, (2*parts - 1) * reconcile.PartRows},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, parts*reconcile.PartRows)
			p.exec(t, tc.damage)
			synctest.Test(t, func(t *testing.T) {
				p.connect(t)
				began := time.Now() // fake time
				p.check(t, reconcile.Options{Rate: perSecond})
				if took := time.Since(began); took < time.Duration(tc.reads/perSecond)*time.Second {
					t.Errorf("%d rows took %v", tc.reads, took)
				}
			})
		})
	}
}
