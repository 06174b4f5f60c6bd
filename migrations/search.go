package migrations

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/migrate"
)

// trigrams is the extension that an index for searches by a part of a title needs. The contrib
// packages of Postgres include it, and managed servers have it.
const trigrams = "pg_trgm"

// searchIndexName is the index of titles.
const searchIndexName = "catalog.video_projection_by_title"

// searchIndex creates the index of titles without blocking writers. It does so only if the server
// has the extension, or if the administrator may install the extension, and if the administrator may use
// the extension's schema. Some databases take the rights on the schema public from PUBLIC. Without the index, a search
// reads the projection in order. The next run of searchIndex then tries again. During a rebuild
// searchIndex changes nothing, because only the served table would get the index. A rebuild does not exchange
// two tables of different shapes, and does not exchange them back.
// No rebuild begins while searchIndex has its lock.
func searchIndex(ctx context.Context, db *sql.DB, extension string, log *slog.Logger) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// The statement does not wait for the lock. Otherwise CREATE INDEX CONCURRENTLY of the process
	// that holds the lock would wait for this waiting session.
	var alone bool
	err = conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock(`+migrate.IndexLock+`)`).Scan(&alone)
	switch {
	case err != nil:
		return err
	case !alone:
		log.InfoContext(ctx, "the index of titles is left as it is: another process creates it, or a rebuild begins")
		return nil
	}
	const unlock = `SELECT pg_advisory_unlock(` + migrate.IndexLock + `)`
	defer conn.ExecContext(context.WithoutCancel(ctx), unlock) //nolint:errcheck // the session ends soon
	schema, err := install(ctx, conn, extension)
	if pg, refused := errors.AsType[*pgconn.PgError](err); refused {
		log.WarnContext(ctx, "searches by title have no index: the extension cannot be installed", "extension", extension, "error", pg.Message)
		return nil
	}
	if err != nil {
		return err
	}
	var valid sql.NullBool // NULL means that there is no index
	const state = `SELECT (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1))`
	err = conn.QueryRowContext(ctx, state, searchIndexName).Scan(&valid)
	if err != nil || valid.Bool {
		return err
	}
	var rebuilding bool
	if err := conn.QueryRowContext(ctx, `SELECT to_regclass('catalog.rebuild_state') IS NOT NULL`).Scan(&rebuilding); err != nil {
		return err
	}
	if rebuilding {
		log.WarnContext(ctx, "searches by title have no index: a rebuild of the read model is open, and the next run after its end creates it")
		return nil
	}
	if valid.Valid { // an earlier build of the index did not finish
		if _, err := conn.ExecContext(ctx, `DROP INDEX CONCURRENTLY `+searchIndexName); err != nil {
			return err
		}
	}
	return createIndex(ctx, conn, schema, log)
}

// createIndex creates the index of titles with the operators in schema. It creates none if the administrator may not
// use the schema.
func createIndex(ctx context.Context, conn *sql.Conn, schema string, log *slog.Logger) error {
	// Without a pending list of new entries. The batch that fills such a list moves all of it into the index before it
	// commits: 0.8 to 1 s with 1,000,000 titles and a list of 256 kB, and each search reads the list. Without it
	// no change of a title took more than 0.08 s. The price is the median change, 1.2 ms in place of 0.6.
	_, err := conn.ExecContext(ctx, `CREATE INDEX CONCURRENTLY video_projection_by_title ON catalog.video_projection
		USING gin (title `+pgx.Identifier{schema, "gin_trgm_ops"}.Sanitize()+`)
		WITH (fastupdate = off) WHERE deleted_at IS NULL`)
	const insufficientPrivilege = "42501"
	if pg, refused := errors.AsType[*pgconn.PgError](err); refused && pg.Code == insufficientPrivilege {
		log.WarnContext(ctx, "searches by title have no index: its creation is refused", "error", pg.Message)
		return nil
	}
	return err
}

// install installs the extension if it is missing, and returns its schema. On some managed servers
// the extension exists already, in any schema.
func install(ctx context.Context, conn *sql.Conn, extension string) (schema string, err error) {
	const where = `SELECT nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = $1`
	err = conn.QueryRowContext(ctx, where, extension).Scan(&schema)
	if !errors.Is(err, sql.ErrNoRows) {
		return schema, err
	}
	//nolint:gosec // an identifier is no parameter
	create := `CREATE EXTENSION IF NOT EXISTS ` + pgx.Identifier{extension}.Sanitize() + ` WITH SCHEMA public`
	if _, err := conn.ExecContext(ctx, create); err != nil {
		return "", err
	}
	err = conn.QueryRowContext(ctx, where, extension).Scan(&schema)
	return schema, err
}
