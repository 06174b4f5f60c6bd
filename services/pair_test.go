package services_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/migrations"
)

// pair is the owner's database: a primary, and a standby that follows it. A client
// names both, and is connected to the one that takes writes.
type pair struct {
	primary, standby *server
	ports            [2]int // of primary and standby; a failover exchanges them
	videoURL         string
	db               *pgxpool.Pool // as the administrator
	// synchronous says that a commit waits for the standby.
	synchronous bool
}

func newPair(t testing.TB, synchronous bool) *pair {
	t.Helper()
	first, second := porttest.Port(t), porttest.Port(t)
	primary := startPrimary(t, first)
	p := &pair{primary: primary, ports: [2]int{first, second}, synchronous: synchronous}
	if err := migrations.Up(t.Context(), primary.url, migrations.Video, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	role, err := postgres.ServiceURL(t.Context(), primary.url, "", migrations.Video.Role())
	if err != nil {
		t.Fatal(err)
	}
	both := func(url string) string {
		host := fmt.Sprintf("127.0.0.1:%d", first)
		return strings.Replace(url, host, fmt.Sprintf("%s,127.0.0.1:%d", host, second), 1) + "&target_session_attrs=read-write"
	}
	p.videoURL = both(role)
	if p.db, err = pgxpool.New(t.Context(), both(primary.url)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.db.Close)
	// As in production. Postgres for tests has it off, and would lose more commits than
	// the end of the stream does.
	p.primary.exec(t, `ALTER ROLE video_service SET synchronous_commit = on`)
	if synchronous {
		// Without this the new primary would accept writes that no standby has. It is
		// part of the data, so each copy of the data has it too.
		p.primary.exec(t, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
		p.primary.exec(t, `SELECT pg_reload_conf()`)
	}
	p.replicate(t)
	return p
}

// world returns a world with the owner's database on the pair, and the read model on a
// database of its own.
func (p *pair) world(t testing.TB, b *testBroker) *world {
	t.Helper()
	w := newWorld(t, b)
	pg := *w.pg
	pg.VideoURL = p.videoURL
	w.pg = &pg
	return w
}

// replicate gives the primary a standby, and returns when the standby streams.
func (p *pair) replicate(t testing.TB) {
	t.Helper()
	p.standby = startStandby(t, p.primary.url, p.ports[1])
	eventually(t, "the standby streams", func() bool {
		return p.primary.ask(t, `
			SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = $1`, p.state()) == 1
	})
}

func (p *pair) state() string {
	if p.synchronous {
		return "sync"
	}
	return "async"
}

// caughtUp waits until the standby has all that is committed by now.
func (p *pair) caughtUp(t testing.TB) {
	t.Helper()
	eventually(t, "the standby has caught up", func() bool {
		return p.primary.ask(t, `SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()`) == 1
	})
}

// cut ends the stream: only the primary has the commits from now on.
func (p *pair) cut(t testing.TB) {
	t.Helper()
	p.standby.exec(t, `ALTER SYSTEM SET primary_conninfo = ''`)
	p.standby.exec(t, `SELECT pg_reload_conf()`)
	eventually(t, "the stream has ended", func() bool {
		return p.primary.ask(t, `SELECT count(*) FROM pg_stat_replication`) == 0
	})
}

// waiting is how many of the owner's commits wait for the standby.
func (p *pair) waiting(t testing.TB) int {
	t.Helper()
	return p.primary.ask(t, `SELECT count(*) FROM pg_stat_activity WHERE usename = 'video_service' AND wait_event = 'SyncRep'`)
}

// failOver kills the primary, and makes the standby the primary.
func (p *pair) failOver(t testing.TB) {
	t.Helper()
	p.primary.crash(t)
	p.standby.promote(t)
	p.primary, p.standby = p.standby, nil
	p.ports[0], p.ports[1] = p.ports[1], p.ports[0]
	p.db.Reset()
}

// exec and ask run on this server, whether or not it takes writes.
func (s *server) exec(t testing.TB, sql string) {
	t.Helper()
	s.on(t, func(ctx context.Context, db *pgxpool.Pool) error {
		_, err := db.Exec(ctx, sql)
		return err
	})
}

func (s *server) ask(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	s.on(t, func(ctx context.Context, db *pgxpool.Pool) error { return db.QueryRow(ctx, sql, args...).Scan(&n) })
	return n
}

func (s *server) on(t testing.TB, do func(context.Context, *pgxpool.Pool) error) {
	t.Helper()
	db, err := pgxpool.New(t.Context(), s.url)
	if err == nil {
		defer db.Close()
		err = do(t.Context(), db)
	}
	if err != nil {
		t.Fatal(err)
	}
}
