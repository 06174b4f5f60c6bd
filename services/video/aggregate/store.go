package aggregate

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/outbox"
)

// Epoch is the owner's epoch as a column of a query for rows: row and epoch are of one
// snapshot.
const Epoch = outbox.PresentEpoch + ` AS epoch`

// SelectAsOf reads the time of the answer, and then rows, so that the time is no later
// than their snapshot: all that had committed by asOf is in the answer. On a standby it
// is the time up to which the standby has replayed, and nil if that is not known.
func SelectAsOf(
	ctx context.Context, db *pgxpool.Pool, read func(pgx.Rows) error, query string, args ...any,
) (asOf *time.Time, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() ELSE clock_timestamp() END`).
		QueryRow(func(r pgx.Row) error { return r.Scan(&asOf) })
	b.Queue(query, args...).Query(read)
	err = db.SendBatch(ctx, b).Close()
	return asOf, err
}

// One reads the only row into found, and leaves found unchanged if there is none.
func One[T any](found *T) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		*found = row
		return nil
	}
}

// All reads all rows into found.
func All[T any](found *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	}
}
