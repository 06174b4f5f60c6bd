package migrate

import (
	"context"
	"database/sql"
	"fmt"
)

// extendOutbox gives the file of an outbox at least 64 pages, as migration 203 has done: a
// restored dump and VACUUM FULL write a new file, as small as its rows. Append's statement
// is planned once for each session. While the file is smaller, that plan reads the whole
// table for each event, and goes on with that when the table has grown. Rows that are
// rolled back extend the file, and vacuum does not truncate it.
func extendOutbox(ctx context.Context, db *sql.DB) error {
	const pages = 64
	var small bool
	err := db.QueryRowContext(ctx,
		`SELECT coalesce(pg_relation_size(to_regclass('outbox')) < $1 * current_setting('block_size')::bigint, false)`, pages).Scan(&small)
	if err != nil || !small {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // the rows must not stay
	_, err = tx.ExecContext(ctx, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), '', '', '', n, decode(repeat('00', 1800), 'hex') FROM generate_series(1, 160) AS n`)
	if err != nil {
		return fmt.Errorf("extend the outbox: %w", err)
	}
	return nil
}
