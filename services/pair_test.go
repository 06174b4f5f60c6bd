package services_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/migrations"
)

// pair is the owner's database: a primary, and a standby that follows it. A client
// names both, and is connected to the one that takes writes.
type pair struct {
	primary, standby *postgres.Server
	ports            [2]int // of primary and standby; a failover exchanges them
	videoURL         string
	db               *pgxpool.Pool // as the administrator
	// synchronous says that a commit waits for the standby.
	synchronous bool
}

func newPair(t testing.TB, synchronous bool) *pair {
	t.Helper()
	first, second := freePort(t), freePort(t)
	primary, err := postgres.Start(t.Context(), postgres.Options{Port: first})
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{primary: primary, ports: [2]int{first, second}, synchronous: synchronous}
	t.Cleanup(func() { p.close(t) })
	if err := migrations.Up(t.Context(), primary.URL(), migrations.Video, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	role, err := postgres.ServiceURL(t.Context(), primary.URL(), "", migrations.Video.Role())
	if err != nil {
		t.Fatal(err)
	}
	both := func(url string) string {
		host := fmt.Sprintf("127.0.0.1:%d", first)
		return strings.Replace(url, host, fmt.Sprintf("%s,127.0.0.1:%d", host, second), 1) + "&target_session_attrs=read-write"
	}
	p.videoURL = both(role)
	if p.db, err = pgxpool.New(t.Context(), both(primary.URL())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.db.Close)
	// As in production. Postgres for tests has it off, and would lose more commits than
	// the end of the stream does.
	p.exec(t, p.primary, `ALTER ROLE video_service SET synchronous_commit = on`)
	if synchronous {
		// Without this the new primary would accept writes that no standby has. It is
		// part of the data, so each copy of the data has it too.
		p.exec(t, p.primary, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
		p.exec(t, p.primary, `SELECT pg_reload_conf()`)
	}
	p.replicate(t)
	return p
}

func freePort(t testing.TB) int {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	return addr.Port
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
	standby, err := p.primary.Standby(t.Context(), p.ports[1])
	if err != nil {
		t.Fatal(err)
	}
	p.standby = standby
	eventually(t, "the standby streams", func() bool {
		return p.ask(t, p.primary, `
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
		return p.ask(t, p.primary, `SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()`) == 1
	})
}

// cut ends the stream: only the primary has the commits from now on.
func (p *pair) cut(t testing.TB) {
	t.Helper()
	p.exec(t, p.standby, `ALTER SYSTEM SET primary_conninfo = ''`)
	p.exec(t, p.standby, `SELECT pg_reload_conf()`)
	eventually(t, "the stream has ended", func() bool {
		return p.ask(t, p.primary, `SELECT count(*) FROM pg_stat_replication`) == 0
	})
}

// waiting is how many of the owner's commits wait for the standby.
func (p *pair) waiting(t testing.TB) int {
	t.Helper()
	return p.ask(t, p.primary, `SELECT count(*) FROM pg_stat_activity WHERE usename = 'video_service' AND wait_event = 'SyncRep'`)
}

// failOver kills the primary, and makes the standby the primary.
func (p *pair) failOver(t testing.TB) {
	t.Helper()
	if err := p.primary.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := p.primary.Close(); err != nil {
		t.Error(err)
	}
	if err := p.standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.primary, p.standby = p.standby, nil
	p.ports[0], p.ports[1] = p.ports[1], p.ports[0]
	p.db.Reset()
}

func (p *pair) close(t testing.TB) {
	t.Helper()
	for _, s := range []*postgres.Server{p.standby, p.primary} {
		if s == nil {
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// exec and ask run on one of the two, whether or not it takes writes.
func (p *pair) exec(t testing.TB, s *postgres.Server, sql string) {
	t.Helper()
	p.on(t, s, func(ctx context.Context, db *pgxpool.Pool) error {
		_, err := db.Exec(ctx, sql)
		return err
	})
}

func (p *pair) ask(t testing.TB, s *postgres.Server, sql string, args ...any) (n int) {
	t.Helper()
	p.on(t, s, func(ctx context.Context, db *pgxpool.Pool) error { return db.QueryRow(ctx, sql, args...).Scan(&n) })
	return n
}

func (*pair) on(t testing.TB, s *postgres.Server, do func(context.Context, *pgxpool.Pool) error) {
	t.Helper()
	db, err := pgxpool.New(t.Context(), s.URL())
	if err == nil {
		defer db.Close()
		err = do(t.Context(), db)
	}
	if err != nil {
		t.Fatal(err)
	}
}
