package queue_test

import (
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The system ends a session's process, for instance for want of memory. The server ends all sessions and recovers,
// but does not start again. It may give new transactions ids that a snapshot has seen as ended: that of a transaction
// that has rolled back, if the log on disk does not have it. So the relays must begin again as after a failover, also
// if the server's clock was two hours ahead when it started.
func TestARecoveredServerIsAnotherOne(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{Log: os.Stderr, InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := pgtest.Library.Up(t.Context(), server.URL(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	db, err := pgxpool.New(t.Context(), server.URL()+"&jit=off&search_path="+pgtest.Library.Name+",pg_catalog")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	b := box{queue.New(db), db}
	b.exec(t, `CREATE FUNCTION pg_postmaster_start_time() RETURNS timestamptz STABLE
		RETURN pg_catalog.pg_postmaster_start_time() + interval '2 hours'`)
	const asked = `SELECT pg_catalog.pg_postmaster_start_time()`
	var started, still time.Time
	started = pgtest.Value[time.Time](t, db, asked)
	first := b.heartbeat(t, "a", "", time.Time{})
	claim := queue.Claim{Token: "a", Server: first.Server, Aggregates: 1, Events: 1, PerAggregate: 1, Bytes: 1}
	if _, err := b.ClaimNew(t.Context(), claim, first.Seen, nil); err != nil {
		t.Fatal(err)
	}
	var sessions [2]*pgxpool.Conn
	for i := range sessions {
		if sessions[i], err = db.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sessions[i].Release)
	}
	if err := syscall.Kill(int(sessions[0].Conn().PgConn().PID()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for sessions[1].QueryRow(t.Context(), asked).Scan(&still) == nil { // until the server has ended the other session, too
		backoff.Sleep(t.Context(), time.Millisecond, nil)
	}
	for db.QueryRow(t.Context(), asked).Scan(&still) != nil && backoff.Sleep(t.Context(), time.Millisecond, nil) {
	}
	if _, err := b.ClaimNew(t.Context(), claim, first.Seen, nil); !errors.Is(err, queue.ErrAnotherServer) {
		t.Errorf("a claim on the recovered server: %v", err)
	}
	second := b.heartbeat(t, "a", first.Seen, first.Server)
	if !still.Equal(started) {
		t.Fatal("the server has started again, so this test shows nothing")
	}
	if second.Server.Equal(first.Server) || second.Inherited == "" {
		t.Errorf("a server that has recovered is the one from before: %+v", second)
	}
}
