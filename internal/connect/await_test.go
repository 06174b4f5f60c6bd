package connect

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/local/postgres"
)

// A server whose memory for locks is used up refuses logins. A command waits for it, as for a server without a free session.
func TestAwaitDatabaseWaitsForMemory(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	holder := useUpLocks(t, server.URL())
	var said []string
	err = AwaitDatabase(ctx, server.URL(), func(err error) {
		code := err.Error()
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
			code = refused.Code
		}
		said = append(said, code)
		holder.Close(ctx)
	})
	if err != nil || len(said) != 1 || said[0] != "53200" {
		t.Errorf("%v; it has waited for %v, want 53200", err, said)
	}
}

// useUpLocks takes locks until the server has no memory for another one.
func useUpLocks(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_lock(i) FROM generate_series(1, 1000000) AS i`)
	if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "53200" {
		t.Fatalf("a million locks: %v", err)
	}
	return conn
}
