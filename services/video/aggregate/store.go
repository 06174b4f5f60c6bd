package aggregate

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/tenant"
)

const (
	// RevisionColumns are the columns of a Revision.
	RevisionColumns = `version, created_at, updated_at, deleted_at, last_event_id, tenant_id`
	// SelectRevision has the columns that a query reads into a Revision. One of them is the owner's
	// epoch in the query's snapshot. If the query waits for the row's lock, the row is newer than the
	// epoch (see Append).
	SelectRevision = RevisionColumns + `, ` + outbox.PresentEpoch + ` AS epoch`
)

const selectEpoch = `SELECT ` + outbox.PresentEpoch

// Arguments returns the values of r by the names of their columns.
func (r Revision) Arguments() pgx.NamedArgs {
	return pgx.NamedArgs{
		"version": r.Version, "created_at": r.CreatedAt, "updated_at": r.UpdatedAt, "deleted_at": r.DeletedAt,
		"last_event_id": r.LastEventID, "tenant_id": r.TenantID,
	}
}

// Placeholders turns a list of columns, such as "a, b", into the list of their pgx.NamedArgs, "@a, @b".
func Placeholders(columns string) string { return "@" + strings.ReplaceAll(columns, ", ", ", @") }

// AsOf says which state of the database an answer shows.
type AsOf struct {
	// Time is the time of the state. It is not later than the answer. The answer shows everything
	// that had committed by Time. On a standby, Time is the time up to which the standby has
	// replayed, or nil if that time is not known.
	Time *time.Time
	// Epoch is the owner's epoch. It is set even if there is no row. The owner had begun this epoch
	// before the rows were read.
	Epoch int64
}

// Scope returns the scope of a request, which is the rows of the caller's tenant.
func Scope(caller auth.Principal) tenant.Scope {
	return tenant.One(migrations.Video.RequestRole(), caller.Tenant)
}

// SelectAsOf reads the time and the epoch of the database's state. Then it runs query on the rows
// in scope, and passes the result to read. It is bounded by [tenant.ReadTime].
func SelectAsOf(
	ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, read func(pgx.Rows) error, query string, args ...any,
) (asOf AsOf, err error) {
	b := &pgx.Batch{}
	scope.Enter(b)
	b.Queue(`SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() ELSE clock_timestamp() END, ` + outbox.PresentEpoch).
		QueryRow(func(r pgx.Row) error { return r.Scan(&asOf.Time, &asOf.Epoch) })
	b.Queue(query, args...).Query(read)
	err = bounded.Run(ctx, tenant.ReadTime, func(ctx context.Context) error { return db.SendBatch(ctx, b).Close() })
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

// All reads all rows into found. It brings the times in the rows into the range that replicas can
// read; see reconcile.RowTo.
func All[T any](found *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, reconcile.RowTo[T])
		return err
	}
}

// Page is like All for a page of a list, but reads no more rows than an answer can have. text is the length
// of a row's texts: see [rest.TextSize].
func Page[T any](found *[]T, text func(T) int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		defer rows.Close()
		*found = []T{} // so that an empty page is not null in JSON
		var space rest.PageSpace
		for more := true; more && rows.Next(); {
			row, err := reconcile.RowTo[T](rows)
			if err != nil {
				return err
			}
			*found, more = append(*found, row), space.Take(text(row))
		}
		rows.Close() // the rest of the rows is read and dropped
		return rows.Err()
	}
}
