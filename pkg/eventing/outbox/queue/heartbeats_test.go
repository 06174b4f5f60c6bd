package queue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// joined writes relays into an empty table of relays, each at a snapshot of its own.
func (b box) registered(t *testing.T, tokens ...string) map[string]queue.HeartbeatResult {
	t.Helper()
	b.exec(t, `DELETE FROM outbox_relays`)
	beats := map[string]queue.HeartbeatResult{}
	for _, token := range tokens {
		b.append(t, uuid.NewString(), 1, 1) // between two of them
		beats[token] = b.heartbeat(t, token, b.snapshot(t), time.Time{})
		// The first of all begins with the table; it has gone through that.
		beats[token] = b.heartbeat(t, token, beats[token].Seen, beats[token].Server)
	}
	return beats
}

func (b box) heartbeat(t *testing.T, token string, low queue.TxSnapshot, server time.Time) queue.HeartbeatResult {
	t.Helper()
	last := queue.HeartbeatResult{Server: server}
	if err := b.db.QueryRow(t.Context(), `SELECT coalesce(min(xmin::text), '') FROM outbox_relays WHERE token = $1`, token).Scan(&last.Written); err != nil {
		t.Fatal(err)
	}
	return b.heartbeatAfter(t, b.Queue, token, low, last)
}

// heartbeatAfter writes a relay's row. last is the answer that the relay has had last.
func (b box) heartbeatAfter(t *testing.T, q queue.Queue, token string, low queue.TxSnapshot, last queue.HeartbeatResult) queue.HeartbeatResult {
	t.Helper()
	result, err := q.Heartbeat(t.Context(), token, low, nil, last, false)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (b box) tokens(t *testing.T) int { return b.count(t, `SELECT count(*) FROM outbox_relays`) }

func TestTheFirstRelayBeginsWithTheTable(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.exec(t, `DELETE FROM outbox_relays`)
	if got := b.heartbeat(t, "a", "", time.Time{}); got.Low != queue.Beginning {
		t.Errorf("the first: %+v, want all of the table", got)
	}
	first := b.heartbeat(t, "a", b.snapshot(t), time.Time{})
	first = b.heartbeat(t, "a", first.Seen, first.Server)
	b.append(t, "new", 1, 1)
	if got := b.heartbeat(t, "b", "", time.Time{}); got.Low != first.Low || len(got.Alive) != 1 {
		t.Errorf("the second: %+v, want what the first has in hand, which may be dead already: %s", got, first.Low)
	}
	b.exec(t, `DELETE FROM outbox_relays`)
	if got := b.heartbeat(t, "b", b.snapshot(t), time.Time{}); got.Low != queue.Beginning {
		t.Errorf("after the rows were lost: %+v, want all of the table", got)
	}
}

// The relay that finds a dead one takes over its low in the same statement.
func TestADeadRelayIsTakenOver(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for name, seen := range map[string]string{
		"silent":             `now() - interval '16 seconds'`,
		"seen in the future": `now() + interval '40 seconds'`,
		"ended by itself":    `'-infinity'`,
		"":                   `now() - interval '14 seconds'`,
	} {
		beats := b.registered(t, "dead", "successor", "third")
		b.exec(t, `UPDATE outbox_relays SET seen_at = `+seen+` WHERE token = 'dead'`)
		got := b.heartbeat(t, "successor", beats["successor"].Low, beats["successor"].Server)
		if name == "" {
			if got.Low != beats["successor"].Low || b.tokens(t) != 3 || len(got.Alive) != 2 {
				t.Errorf("one that is alive was taken over: %+v", got)
			}
			continue
		}
		if got.Low != beats["dead"].Low || b.tokens(t) != 2 {
			t.Errorf("%s: %+v, want what the dead one had: %s", name, got, beats["dead"].Low)
		}
		if diff := cmp.Diff([]string{"third"}, got.Alive); diff != "" {
			t.Errorf("%s: alive %s", name, diff)
		}
		if got := b.heartbeat(t, "third", beats["third"].Low, beats["third"].Server); got.Low != beats["third"].Low {
			t.Errorf("%s: taken over twice: %+v", name, got)
		}
	}
}

// A relay that takes over several dead ones scans from the earliest of their lows. Its own low does not count.
func TestTheEarliestLowOfTheDeadIsInherited(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	lows := []string{"5:9:5,7", "5:9:5,6,7"}
	for range lows {
		slices.Reverse(lows)
		beats := b.registered(t, "first", "successor", "last")
		b.exec(t, `UPDATE outbox_relays SET seen_at = '-infinity', low = $1 WHERE token = 'first'`, lows[0])
		b.exec(t, `UPDATE outbox_relays SET seen_at = '-infinity', low = $1 WHERE token = 'last'`, lows[1])
		got := b.heartbeat(t, "successor", "4:4:", beats["successor"].Server)
		if got.Inherited != "5:9:5,6,7" || got.Low != "4:4:" {
			t.Errorf("%+v, want to inherit the earliest low of the dead", got)
		}
	}
}

// A relay does not know of a takeover if the answer was lost: it reads its row, and does not write
// over it. The heartbeat without an answer may have been executed before or after others.
func TestAHeartbeatWithoutAnAnswerIsNotForgotten(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	beats := b.registered(t, "dead", "successor")
	own := beats["successor"].Low
	answered := b.heartbeat(t, "successor", own, beats["successor"].Server)
	b.exec(t, `UPDATE outbox_relays SET seen_at = '-infinity' WHERE token = 'dead'`)
	b.heartbeatAfter(t, b.Queue, "successor", own, beats["successor"]) // late, and its answer is lost
	next := b.heartbeatAfter(t, b.Queue, "successor", own, answered)
	if next.Low != beats["dead"].Low {
		t.Errorf("%+v, want what the dead one had: %s", next, beats["dead"].Low)
	}
	if got := b.heartbeatAfter(t, b.Queue, "successor", own, next); got.Low != own {
		t.Errorf("%+v, want what is left in hand: %s", got, own)
	}
}

// A heartbeat takes over a dead relay, and is in its commit when the next one comes.
func TestHeartbeatsDoNotOvertakeEachOther(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL)
	b := box{queue.New(db), db}
	beats := b.registered(t, "dead", "successor")
	b.exec(t, `UPDATE outbox_relays SET seen_at = '-infinity' WHERE token = 'dead'`)
	admin := pg.Pool(t, pg.Admin)
	pgtest.Exec(t, admin, `
		CREATE FUNCTION app.hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		  IF current_setting('application_name') = 'slow' THEN PERFORM pg_advisory_xact_lock(4711); END IF; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON app.outbox_relays DEFERRABLE INITIALLY DEFERRED
		  FOR EACH ROW EXECUTE FUNCTION app.hold_commit()`)
	hold := pgtest.Begin(t, admin)
	defer func() { _ = hold.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, hold, `SELECT pg_advisory_xact_lock(4711)`)
	var sent sync.WaitGroup
	last := beats["successor"]
	for i, q := range []queue.Queue{queue.New(pg.Pool(t, pg.URL+"&application_name=slow")), b.Queue} {
		sent.Go(func() { b.heartbeatAfter(t, q, "successor", last.Low, last) })
		for b.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) <= i {
			backoff.Sleep(t.Context(), time.Millisecond, nil)
		}
	}
	pgtest.End(t, hold.Rollback)
	sent.Wait()
	if n := b.count(t, `SELECT count(*) FROM outbox_relays WHERE low::text = $1`, string(beats["dead"].Low)); n != 1 || b.tokens(t) != 1 {
		t.Errorf("%d of %d relays cover what the dead one had", n, b.tokens(t))
	}
}

// A relay that looked dead writes its row after the snapshot of another relay's heartbeat. That
// heartbeat leaves the row alone.
func TestARelayThatComesBackIsNotTakenOver(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	b := box{queue.New(pg.Pool(t, pg.URL)), pg.Pool(t, pg.URL)}
	beats := b.registered(t, "back", "other")
	b.append(t, uuid.NewString(), 1, 1) // the lows differ
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '20 seconds' WHERE token = 'back'`)
	admin := pg.Pool(t, pg.Admin)
	pgtest.Exec(t, admin, `
		CREATE FUNCTION app.hold_scan() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
		  IF current_query() LIKE 'WITH present%' THEN PERFORM pg_advisory_xact_lock(4711); END IF; RETURN true; END $$;
		ALTER TABLE app.outbox_relays ENABLE ROW LEVEL SECURITY;
		ALTER TABLE app.outbox_relays FORCE ROW LEVEL SECURITY;
		CREATE POLICY hold ON app.outbox_relays USING (app.hold_scan())`)
	hold := pgtest.Begin(t, admin)
	defer func() { _ = hold.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, hold, `SELECT pg_advisory_xact_lock(4711)`)
	var got queue.HeartbeatResult
	var sent sync.WaitGroup
	sent.Go(func() { got = b.heartbeat(t, "other", beats["other"].Low, beats["other"].Server) })
	for b.count(t, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 0 {
		backoff.Sleep(t.Context(), time.Millisecond, nil)
	}
	pgtest.Exec(t, admin, `
		UPDATE app.outbox_relays SET seen_at = now(), low = pg_current_snapshot() WHERE token = 'back'`)
	pgtest.End(t, hold.Rollback)
	sent.Wait()
	if got.Low != beats["other"].Low || b.tokens(t) != 2 {
		t.Errorf("%d relays; low %s, want that of the relay itself: %s", b.tokens(t), got.Low, beats["other"].Low)
	}
}

// A heartbeat without an answer is executed after its relay has ended. The relay stays dead.
func TestARelayThatHasEndedStaysDead(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	beats := b.registered(t, "ended")
	last, err := b.Heartbeat(t.Context(), "ended", beats["ended"].Low, nil, beats["ended"], true)
	if err != nil {
		t.Fatal(err)
	}
	b.heartbeatAfter(t, b.Queue, "ended", last.Low, beats["ended"])
	if n := b.count(t, `SELECT count(*) FROM outbox_relays WHERE seen_at = '-infinity'`); n != 1 {
		t.Error("a late heartbeat makes a relay look alive that has ended")
	}
}

// Another server than before may lack the last commits, marks among them: the events that
// each relay had leased when it stopped may be unfinished.
func TestAFailoverIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	beats := b.registered(t, "first", "second")
	if got := b.heartbeat(t, "second", beats["second"].Low, beats["second"].Server.Add(-time.Hour)); got.Low != beats["first"].Low {
		t.Errorf("%+v, want the least that any had in hand: %s", got, beats["first"].Low)
	}
}

// A relay meets another server, where the others have taken over its row. Its own low saw a transaction whose id the new server has
// used again. So the low means nothing there, although it is earlier by its xmax.
func TestALowOfAFormerServer(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	beats := b.registered(t, "other")
	b.exec(t, `UPDATE outbox_relays SET low = '4:9:4'`)
	if got := b.heartbeat(t, "back", "5:5:", beats["other"].Server.Add(-time.Hour)); got.Low != "4:9:4" {
		t.Errorf("%+v, want the low of the other relay", got)
	}
	b.exec(t, `UPDATE outbox_relays SET low = '4:9:4'`)
	if got := b.heartbeat(t, "back", "5:5:", beats["other"].Server); got.Low != "5:5:" {
		t.Errorf("%+v, want the relay's own low: the server is the same", got)
	}
}

// Rows of another cluster, restored by a dump, have transactions that say nothing here.
func TestSnapshotsOfAnotherCluster(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.registered(t, "dead")
	b.exec(t, `UPDATE outbox_relays SET seen_at = '-infinity', low = '9000000000000:9000000000000:'`)
	if got := b.heartbeat(t, "successor", "", time.Time{}); got.Low != queue.Beginning {
		t.Errorf("%+v, want all of the table", got)
	}
	beats := b.registered(t, "alive")
	if got := b.heartbeat(t, "alive", "9000000000000:9000000000000:", beats["alive"].Server.Add(-time.Hour)); got.Low != beats["alive"].Low {
		t.Errorf("%+v, want what the row says: %s", got, beats["alive"].Low)
	}
}

func TestEarliest(t *testing.T) {
	t.Parallel()
	inOrder := []queue.TxSnapshot{queue.Beginning, "5:9:5,6,7", "5:9:5,7", "6:9:6", "9:9:", "9:10:9", "10:10:"}
	for i, s := range inOrder {
		for _, later := range inOrder[i:] {
			if got := queue.Earliest(later, "", s); got != s {
				t.Errorf("earliest of %s and %s: %s", later, s, got)
			}
		}
	}
	if got := queue.Earliest("", ""); got != "" {
		t.Errorf("earliest of none: %s", got)
	}
}
