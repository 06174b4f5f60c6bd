// Package migrations holds the schemas of both services as goose migrations, embedded
// so that tests, `make run`, the `migrate` commands and deployments all run the same
// files.
//
// The owner of the schema runs its migrations: an administrator on a laptop and in
// tests, video_owner and catalog_owner of deploy/terraform/roles.sql where the pair is
// deployed, which own a schema each. The service itself connects as its own role
// (video_service, catalog_service), which can touch its own schema and no other, and
// owns nothing.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // goose speaks database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed video/*.sql catalog/*.sql
var files embed.FS

// Service names a service, its schema and its folder here.
type Service string

// The services that have a schema.
const (
	Video   Service = "video"
	Catalog Service = "catalog"
)

// Role is the database role that the service connects as.
func (s Service) Role() string { return string(s) + "_service" }

// timeout bounds a whole migration run. It is generous, because an index on a large
// table takes minutes; but a deployment must not hang for ever.
const timeout = 15 * time.Minute

// Up brings the service's schema in the database at adminURL to the newest version.
// Each migration is a transaction of its own, unless it says otherwise. It is
// idempotent, and safe to run from several processes at once: they take turns behind an
// advisory lock. The optional search index comes last (see searchIndex); Check does not
// require it. An outbox that was restored gets the size that it was created with (see
// extendOutbox).
func Up(ctx context.Context, adminURL string, s Service, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	db, err := sql.Open("pgx", adminURL)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", s, err)
	}
	defer db.Close()
	if err := createSchema(ctx, db, s); err != nil {
		return fmt.Errorf("migrate %s: create schema: %w", s, err)
	}
	p, err := provider(db, s)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", s, err)
	}
	applied, err := p.Up(ctx)
	for _, r := range applied {
		log.InfoContext(ctx, "migrated", "service", s, "file", r.Source.Path, "took_ms", r.Duration.Milliseconds())
	}
	switch {
	case err != nil:
	case s == Catalog:
		err = searchIndex(ctx, db, trigrams, log)
	case s == Video:
		err = extendOutbox(ctx, db)
	}
	if err != nil {
		return fmt.Errorf("migrate %s: %w", s, err)
	}
	return nil
}

// createSchema runs before goose, which keeps its version table in that schema.
func createSchema(ctx context.Context, db *sql.DB, s Service) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to roll back
	// CREATE SCHEMA IF NOT EXISTS fails when two sessions create it at once.
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext('lockstep create schema'))`); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+pgx.Identifier{string(s)}.Sanitize()); err != nil {
		return err
	}
	return tx.Commit()
}

func provider(db *sql.DB, s Service) (*goose.Provider, error) {
	store, err := database.NewStore(database.DialectPostgres, string(s)+".goose_db_version")
	if err != nil {
		return nil, err
	}
	dir, err := fs.Sub(files, string(s))
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	return goose.NewProvider("", db, dir, goose.WithStore(store), goose.WithSessionLocker(locker))
}

// Check returns an error unless the service's schema has every migration that
// this binary carries. Newer ones are fine: during a rollout the schema moves
// first.
func Check(ctx context.Context, pool *pgxpool.Pool, s Service) error {
	want, err := newest(s)
	if err != nil {
		return err
	}
	var have int64
	err = pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+
		pgx.Identifier{string(s), "goose_db_version"}.Sanitize()+` WHERE is_applied`).Scan(&have)
	if err != nil {
		return fmt.Errorf("read schema version of %s: %w", s, err)
	}
	if have < want {
		return fmt.Errorf("schema %s is at version %d, this binary needs %d: run `%s migrate`", s, have, want, s)
	}
	return nil
}

func newest(s Service) (int64, error) {
	entries, err := fs.ReadDir(files, string(s))
	if err != nil {
		return 0, fmt.Errorf("read embedded migrations: %w", err)
	}
	last := entries[len(entries)-1].Name() // ReadDir sorts by name
	v, err := goose.NumericComponent(last)
	if err != nil {
		return 0, fmt.Errorf("read embedded migrations: %w", err)
	}
	return v, nil
}
