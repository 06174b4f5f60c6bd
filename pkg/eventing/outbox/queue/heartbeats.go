package queue

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/bounded"
)

const (
	// HeartbeatEvery is how often a relay writes its low, which is the snapshot from which
	// another relay must scan if this one dies.
	HeartbeatEvery = 5 * time.Second
	// deadAfter is an age of a relay's last heartbeat. At that age two heartbeats are missing, and
	// other relays regard the relay as dead. A mistake costs only a scan.
	deadAfter = 3 * HeartbeatEvery
	// goneAfter is an age of a relay's last heartbeat. A relay is gone if its last heartbeat is that old and the session of that
	// heartbeat has ended. At that age one heartbeat is missing. A living relay has written it, in a session that is still open.
	goneAfter = HeartbeatEvery + time.Second
	// goneUntil is an age of a relay's last heartbeat. At that age all leases of the relay are over,
	// also leases of statements that the server still executed when the relay counted as dead. A relay
	// of that age does not count as gone: its row is left only because another session has locked the
	// row, and the relay may live.
	goneUntil = deadAfter + LeaseTime
	// stalledAfter is an age of a relay's own last heartbeat. At that age the relay regards the
	// database as stalled. It is the time limit of a heartbeat: a stall ends the session of another
	// relay's heartbeat by this limit, so such a stall lasts as long.
	stalledAfter = Timeout
)

// HeartbeatResult is the answer to a relay that has written its row.
type HeartbeatResult struct {
	// Low is a snapshot that saw none of the events that may be unfinished: events of the
	// relay, events of dead relays that it has taken over, and events of no relay.
	Low TxSnapshot
	// Inherited is a snapshot that saw none of the unfinished events that are not the relay's, or empty
	// if there are no such events. The relay scans from it. Low does not show whether there are any,
	// because the relay's own low may be as early.
	Inherited TxSnapshot
	// Alive are the tokens of the other living relays. Tenants are the last tenants that these
	// relays met.
	Alive, Tenants []string
	// Gone are the tokens of gone relays, which are relays whose processes have ended. Such a relay has
	// written that it has ended, or its session has ended. Its leases protect nothing any more.
	Gone []string
	// GoneLow is a snapshot that saw none of the unfinished events of the gone relays that are not dead
	// yet, or empty. A relay scans from GoneLow without waiting until these relays are dead. When they are
	// dead, a relay takes over their rows and scans again, so nothing depends on the scan from GoneLow: a
	// statement that the server still executes for an ended process may commit after that scan.
	GoneLow TxSnapshot
	// GoneIn is the time until the next relay counts as gone, unless that relay writes a heartbeat before.
	// Only living relays whose sessions have ended are considered. GoneIn is zero if there is no such relay.
	GoneIn time.Duration
	// Seen is the snapshot of the heartbeat.
	Seen TxSnapshot
	// Server identifies the life of the database's server. It is the sum of two times: the start of the
	// server, and its last recovery after one of its processes had crashed. So Server differs after a
	// restart, a recovery or a failover. The later of the two times would not suffice, because the
	// clock may have been set back between them. Server must differ after a recovery, because the
	// server may then assign the id of a transaction a second time. The log on disk may lack a
	// transaction that had rolled back, and an earlier snapshot has seen this id as ended. The time of
	// the recovery is the time of the last reset of the statistics. A recovery resets them. If an
	// operator resets them, each relay writes a heartbeat at once, claims nothing until then, and scans
	// a few times.
	Server time.Time
	// Written identifies the version of the relay's row that this heartbeat has written. It is the row's xmin.
	Written string
	// Clock is the database's clock.
	Clock Clock
	// Resumed is the end of the last interruption of the relay's heartbeats, by the clock of this
	// process. It is the time of the first answer after a heartbeat was late, or the time at which the
	// last heartbeat failed. It is zero if neither has happened.
	Resumed time.Time
}

// judges reports whether a relay may judge at the time now that other relays are gone. h is the answer to
// the relay's last heartbeat. A stall of the database keeps all relays from their heartbeats, and the time
// limit of a heartbeat ends its session. So if the relay's own heartbeat is late or has failed, the relay
// waits for the time in which the other relays can write a heartbeat. The heartbeat that is sent now may
// stall, too. Therefore the server compares the relay's row with its clock again.
func (h HeartbeatResult) judges(now time.Time) bool {
	return !h.missed(now) && (h.Resumed.IsZero() || now.Sub(h.Resumed) > goneAfter)
}

// missed reports whether the answer h is so old at the time now that the database may have stalled
// after it.
func (h HeartbeatResult) missed(now time.Time) bool {
	return !h.Clock.Answered.IsZero() && now.Sub(h.Clock.Answered) > stalledAfter
}

// Clock is a reading of the database's clock. The clock showed Time at a moment between Asked and
// Answered, which are by the clock of this process.
type Clock struct{ Time, Asked, Answered time.Time }

// At returns the database's time at the moment now of this process, or a time that is up to Error
// earlier.
func (c Clock) At(now time.Time) time.Time { return c.Time.Add(now.Sub(c.Answered)) }

// Error is by how much the result of At may be too early.
func (c Clock) Error() time.Duration { return c.Answered.Sub(c.Asked) }

// heartbeat writes a relay's row and deletes the rows of dead relays, whose lows the relay takes over.
// See "Where to look" in the package doc. If the relay has no row, because it is new or was regarded as
// dead, it scans from the earliest low of all rows. It does the same if the database's server has
// changed. Then the low that the relay has of the former server does not count. If there is no row at
// all, or if a low comes from another cluster, the relay scans from the beginning of the table.
//
// A heartbeat without an answer may be executed before or after the next one, and may take over the low
// of a dead relay. So each heartbeat locks the relay's own row first (lockOwnRow). If the row is not as
// the last answered heartbeat has written it, the answer includes the row's low. If the row shows that
// its relay has ended, no later heartbeat of that relay changes this.
//
// The statement locks the row of a dead relay after it has taken its snapshot. Meanwhile that relay may
// have come back. So the statement compares the time in the row again under the lock. It skips rows of
// other relays that are locked, so two relays that take each other for dead have no deadlock.
//
// A process that is killed leaves no session. So the row has the session of the heartbeat, and a relay
// whose session has ended is gone after one missing heartbeat. An ended session alone does not prove
// that the process has ended: a pool replaces its connections, and a new primary has none of the former
// one's sessions. So the row has the life of the server, too. Behind a transaction pooler the session
// is the pooler's, and lasts. A relay that ends judges no relay by its session, because it would forget
// which relays are gone.
//
//go:embed heartbeat.sql
var heartbeat string

// lockOwnRow locks a relay's row, in the transaction of its heartbeat. It is a statement of its own,
// so that the snapshot of the heartbeat is later than the wait for the lock. In an earlier snapshot, a
// low that another relay has written since would look like a low of another cluster, and the relay
// would scan the whole table.
const lockOwnRow = `SELECT FROM outbox_relays WHERE token = $1 FOR UPDATE`

// Heartbeat writes the row of a relay. ended is true for the last heartbeat of a relay that ends. low
// is the relay's low watermark, which is a snapshot from before all events that may be unfinished in
// the relay. An empty low means that there are no such events. tenants are the tenants that the relay
// met last. last is the result of the last answered heartbeat, or zero.
func (q Queue) Heartbeat(
	ctx context.Context, token string, low TxSnapshot, tenants []string, last HeartbeatResult, ended bool,
) (b HeartbeatResult, err error) {
	var goneIn float64
	judges := !ended && last.judges(time.Now())
	args := []any{
		token, low.orNull(), deadAfter, orNull(last.Server), ended, tenants, last.Written,
		goneAfter, judges, stalledAfter, goneUntil,
	}
	err = bounded.Run(ctx, Timeout, func(ctx context.Context) error {
		db, err := q.db.Acquire(ctx)
		if err != nil {
			return err
		}
		defer db.Release()
		b.Clock.Asked = time.Now()
		defer func() { b.Clock.Answered = time.Now() }()
		return q.behindLock(ctx, db, token, heartbeat, args,
			&b.Low, &b.Inherited, &b.Written, &b.Seen, &b.Server, &b.Alive, &b.Gone, &b.GoneLow, &goneIn, &b.Tenants, &b.Clock.Time)
	})
	if err != nil {
		return HeartbeatResult{}, fmt.Errorf("write that the relay is alive: %w", err)
	}
	b.GoneIn = time.Duration(goneIn * float64(time.Second))
	if b.Resumed = last.Resumed; last.missed(b.Clock.Answered) {
		b.Resumed = b.Clock.Answered
	}
	return b, nil
}

// behindLock locks the row of the relay token, and then runs a statement that returns one row, in the same transaction. It
// scans the row into to. It takes one round trip. If the sessions keep no prepared statements, it takes
// four, because pgx runs the statements of a batch in the mode of db's configuration, and some modes do
// not know the types of to.
func (q Queue) behindLock(ctx context.Context, db *pgxpool.Conn, token, sql string, args []any, to ...any) error {
	if q.keepsStatements {
		b := &pgx.Batch{}
		b.Queue(lockOwnRow, token)
		b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(to...) })
		return db.SendBatch(ctx, b).Close()
	}
	const mode = pgx.QueryExecModeCacheDescribe // as in quick
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockOwnRow, mode, token); err != nil {
			return err
		}
		return tx.QueryRow(ctx, sql, append([]any{mode}, args...)...).Scan(to...)
	})
}

// orNull returns a time as a parameter of a statement, which is NULL for the zero time.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// RequestScan makes a relay scan for the events that tx does not see: with the commit of tx a row of a relay is there that
// has ended, with the name as its token. Its low has not seen the events (see "Lows and lives" in the doc.go of package outbox). With its
// next heartbeat a relay takes the row over, and scans from the low. If the table of relays has no row, the next relay has to
// scan the whole table, so the low has seen nothing.
func RequestScan(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO outbox_relays (token, low, seen_at)
		SELECT $1, CASE WHEN EXISTS (SELECT FROM outbox_relays) THEN pg_current_snapshot() ELSE $2::text::pg_snapshot END, '-infinity'
		    ON CONFLICT (token) DO NOTHING`, name, string(Beginning))
	return err
}
