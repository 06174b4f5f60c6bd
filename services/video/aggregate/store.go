package aggregate

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/tenant"
)

const (
	// RevisionColumns are the columns of a Revision.
	RevisionColumns = `version, created_at, updated_at, deleted_at, last_event_id, tenant_id`
	// SelectRevision are those of a query, which also reads the owner's epoch, in the
	// snapshot of the row.
	SelectRevision = RevisionColumns + `, ` + outbox.PresentEpoch + ` AS epoch`
)

// Arguments are r by its columns.
func (r Revision) Arguments() pgx.NamedArgs {
	return pgx.NamedArgs{
		"version": r.Version, "created_at": r.CreatedAt, "updated_at": r.UpdatedAt, "deleted_at": r.DeletedAt,
		"last_event_id": r.LastEventID, "tenant_id": r.TenantID,
	}
}

// Placeholders are the names of columns in pgx.NamedArgs.
func Placeholders(columns string) string { return "@" + strings.ReplaceAll(columns, ", ", ", @") }

// AsOf is the state of the database that answered.
type AsOf struct {
	// Time is no later than the answer: all that had committed by then is in it. On a
	// standby it is the time up to which the standby has replayed, and nil if that is not
	// known.
	Time *time.Time
	// Epoch is the owner's epoch, also where it has no row. The owner cannot have begun it
	// after the rows were read.
	Epoch int64
}

// Scope is the rows of one tenant, for a request.
func Scope(caller auth.Principal) tenant.Scope {
	return tenant.One(migrations.Video.RequestRole(), caller.Tenant)
}

// SelectAsOf reads the state of the database, and then rows in scope.
func SelectAsOf(
	ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, read func(pgx.Rows) error, query string, args ...any,
) (asOf AsOf, err error) {
	b := &pgx.Batch{}
	scope.Enter(b)
	b.Queue(`SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() ELSE clock_timestamp() END, ` + outbox.PresentEpoch).
		QueryRow(func(r pgx.Row) error { return r.Scan(&asOf.Time, &asOf.Epoch) })
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

// All reads all rows into found, as replicas get them.
func All[T any](found *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, reconcile.RowTo[T])
		return err
	}
}
