package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Phase is a phase of a rebuild; the package doc has what each does.
type Phase string

// The phases. None is that of a read model without a rebuild.
const (
	None       Phase = ""
	Filling    Phase = "filling"
	Comparing  Phase = "comparing"
	Checking   Phase = "checking"
	Done       Phase = "done"
	RolledBack Phase = "rolled back"
)

// State is how far a rebuild is. The zero State is that there is none.
type State struct {
	Phase Phase `json:"phase"`
	// AggregateType and Next are where filling continues.
	AggregateType string `json:"aggregate_type"`
	Next          string `json:"next_id"`
	// Rows of the owner have been read.
	Rows      int64     `json:"rows"`
	StartedBy string    `json:"started_by"`
	StartedAt time.Time `json:"started_at"`
	ChangedAt time.Time `json:"changed_at"`
	// ShadowBytes is the size of the tables that are not served, with their indexes.
	ShadowBytes int64 `json:"shadow_bytes"`
}

const createState = `
	CREATE TABLE rebuild_state (
	  only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
	  phase          text        NOT NULL,
	  aggregate_type text        NOT NULL,
	  next_id        text        NOT NULL DEFAULT '',
	  rows           bigint      NOT NULL DEFAULT 0,
	  started_by     text        NOT NULL,
	  started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
	  changed_at     timestamptz NOT NULL DEFAULT clock_timestamp()
	)`

// State returns how far the rebuild is.
func (r *Rebuild) State(ctx context.Context) (s State, err error) {
	ctx, cancel := context.WithTimeout(ctx, shortTime)
	defer cancel()
	rows, _ := r.db.Query(ctx, `
		SELECT phase, aggregate_type, next_id AS next, rows, started_by, started_at, changed_at,
		       (SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint FROM unnest($1::text[]) AS name) AS shadow_bytes
		  FROM rebuild_state`, r.shadows())
	s, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[State])
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedTable {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("read the state of the rebuild: %w", err)
	}
	return s, nil
}

// advance saves where filling continues.
func (r *Rebuild) advance(ctx context.Context, aggregateType, next string, rows int) error {
	return r.save(ctx, `
		UPDATE rebuild_state SET aggregate_type = $1, next_id = $2, rows = rows + $3, changed_at = clock_timestamp()`,
		aggregateType, next, rows)
}

// enter saves the next phase.
func (r *Rebuild) enter(ctx context.Context, p Phase) error {
	return r.save(ctx, `UPDATE rebuild_state SET phase = $1, changed_at = clock_timestamp()`, p)
}

func (r *Rebuild) save(ctx context.Context, sql string, args ...any) error {
	err := r.retry(ctx, shortTime, func(ctx context.Context) error {
		_, err := r.db.Exec(ctx, sql, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("save the state of the rebuild: %w", err)
	}
	return nil
}
