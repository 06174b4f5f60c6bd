package migrate_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/pressly/goose/v3/lock"

	"example.com/lockstep/internal/pgtest"
)

// Another schema of the database may be migrated with goose for minutes, as by the creation of a large
// index. No migration of this schema waits for that.
func TestSchemasDoNotTakeTurns(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	other, err := pg.Pool(t, pg.Admin).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	pgtest.Exec(t, other, `SELECT pg_advisory_lock($1)`, lock.DefaultLockID)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := orders.Up(ctx, pg.Admin, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}
