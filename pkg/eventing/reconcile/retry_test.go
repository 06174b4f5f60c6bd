package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/reconcile"
)

// The reader's only connection is ended before each of its reads. The check finds the difference all the same, reports
// it once, and counts each row once.
func TestACheckOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	const rows = 200
	p := newPair(t, rows)
	pool := p.db.Config()
	pool.MaxConns, pool.ConnConfig.RuntimeParams["application_name"] = 1, "reader"
	reader := openPool(t, pool)
	p.Reader = reconcile.NewTable(reader, "copied", []string{"a", "b"}, columns+", epoch", reconcile.ColumnEpoch)
	if err := reader.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := p.damage(t, `UPDATE app.copied SET body = 'by hand' WHERE `+some(9))
	ended := 0
	p.owner.after = func(int) {
		ended++
		p.exec(t, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'reader'`)
	}
	found, unsettled := p.check(t, reconcile.Options{})
	if len(found) != 1 || !strings.HasSuffix(found[0], id) || unsettled > 0 || p.rows != rows {
		t.Errorf("%v differ, %d unsettled of %d rows", found, unsettled, p.rows)
	}
	if ended < 2 || len(p.retried) < ended {
		t.Errorf("the connection was ended %d times, and read again after %v", ended, p.retried)
	}
}

// A check that waits for an event says so, and for how many rows.
func TestACheckSaysThatItWaits(t *testing.T) {
	t.Parallel()
	p := newPair(t, 200)
	p.exec(t, `UPDATE app.owned SET version = version + 1, updated_at = now() WHERE `+some(9)+` OR `+some(29))
	found, unsettled := p.check(t, reconcile.Options{Grace: 3 * time.Second})
	if len(found) != 2 || unsettled > 0 || len(p.waited) != 1 || p.waited[0] != 2 {
		t.Errorf("%v differ, %d unsettled, waited for %v rows", found, unsettled, p.waited)
	}
	p.check(t, reconcile.Options{Grace: time.Millisecond})
	if len(p.waited) > 0 {
		t.Errorf("waited for %v rows that are certain", p.waited)
	}
}
