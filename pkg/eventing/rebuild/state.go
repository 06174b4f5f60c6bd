package rebuild

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/bounded"
)

// Phase is a phase of a rebuild. The package doc describes each.
type Phase string

// The phases. None means that there is no rebuild.
const (
	None       Phase = ""
	Filling    Phase = "filling"
	Comparing  Phase = "comparing"
	Checking   Phase = "checking"
	Done       Phase = "done"
	RolledBack Phase = "rolled back"
)

// State is the progress of a rebuild. The zero State means that there is no rebuild.
type State struct {
	Phase Phase `json:"phase"`
	// AggregateType is the aggregate type at which the phase Filling continues.
	AggregateType string `json:"aggregate_type"`
	// Next is the id in AggregateType at which the phase Filling continues.
	Next string `json:"next_id"`
	// Rows counts the owner's rows that have been read.
	Rows      int64     `json:"rows"`
	StartedBy string    `json:"started_by"`
	StartedAt time.Time `json:"started_at"`
	ChangedAt time.Time `json:"changed_at"`
	// ShadowBytes is the size of the tables that are not served, with their indexes.
	ShadowBytes int64 `json:"shadow_bytes"`
	// Missing names the shadow tables that do not exist, because a person has dropped them. The mirror's
	// triggers still write to a dropped table, and fail. So no event of the table's type is applied until
	// Finish removes the triggers.
	Missing []string `json:"missing_tables"`
}

// RollbackError returns an error that wraps ErrPhase if the phase of s allows no Rollback, and otherwise nil.
func (s State) RollbackError() error {
	if s.Phase != Checking && s.Phase != Done && s.Phase != RolledBack {
		return fmt.Errorf("%w: the tables were not exchanged", ErrPhase)
	}
	return nil
}

// FinishError returns an error that wraps ErrPhase if the phase of s does not allow Finish with this value
// of unchecked, and otherwise nil.
func (s State) FinishError(unchecked bool) error {
	switch {
	case s.Phase == None:
		return fmt.Errorf("%w: there is nothing to remove", ErrPhase)
	case s.Phase == Checking && !unchecked:
		return fmt.Errorf("%w: the new rows are not checked yet", ErrPhase)
	}
	return nil
}

// execer is a pool, or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

//go:embed create_state.sql
var createState string

// State returns the progress of the rebuild. It waits, as other statements do, while another process
// locks the tables to exchange or remove them.
func (r *Rebuild) State(ctx context.Context) (s State, err error) {
	err = r.retry(ctx, shortTime, func(ctx context.Context) (err error) {
		s, err = r.readState(ctx)
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedTable {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("read the state of the rebuild: %w", err)
	}
	return s, nil
}

func (r *Rebuild) readState(ctx context.Context) (State, error) {
	rows, _ := r.db.Query(ctx, `
		SELECT phase, aggregate_type, next_id AS next, rows, started_by, started_at, changed_at,
		       (SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint FROM unnest($1::text[]) AS name) AS shadow_bytes,
		       ARRAY(SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NULL) AS missing
		  FROM rebuild_state`, r.shadows) // CollectExactlyOneRow returns the error
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[State])
}

// advance saves the type and the id at which the filling of s continues. It adds rows to the number
// of rows that have been read.
func (r *Rebuild) advance(ctx context.Context, s State, aggregateType, next string, rows int) error {
	return r.save(ctx, s, `aggregate_type = $3, next_id = $4, rows = rows + $5`, aggregateType, next, rows)
}

// enter saves p as the phase after the phase of s.
func (r *Rebuild) enter(ctx context.Context, s State, p Phase) error {
	return r.save(ctx, s, `phase = $3`, p)
}

func (r *Rebuild) save(ctx context.Context, s State, set string, args ...any) error {
	err := r.retry(ctx, shortTime, func(ctx context.Context) error {
		return s.update(ctx, r.db, `UPDATE rebuild_state SET `+set+`, changed_at = clock_timestamp()`, args...)
	})
	if err != nil {
		return fmt.Errorf("save the state of the rebuild: %w", err)
	}
	return nil
}

// update runs a statement on the row of rebuild_state if the row still has the rebuild and the
// phase of s. Otherwise it returns ErrPhase. A process that has lost its lock may run next to
// another process, and must not undo the decisions of that process.
func (s State) update(ctx context.Context, db execer, sql string, args ...any) error {
	tag, err := db.Exec(ctx, sql+` WHERE phase = $1 AND started_at = $2`, append([]any{s.Phase, s.StartedAt}, args...)...)
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == undefinedTable || err == nil && tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: another process has moved the rebuild on, which was %s", ErrPhase, s.Phase)
	}
	return err
}

// ErrDisk is returned if the free space of the server's disk is too small.
var ErrDisk = errors.New("too little free disk")

// Need is the disk space that a rebuild takes, in bytes.
type Need struct {
	// Copy is the space of the shadow tables with their indexes. It is the size of the served
	// tables, and a fifth more for the old versions of rows that change meanwhile.
	Copy int64 `json:"copy_bytes"`
	// Log is the space of the write-ahead log of the copy, five times the size of the tables. In
	// measurements the copy of 50,000 rows wrote 2.2 times their size, and the copy of a million
	// rows, together with 122,000 writes of clients, 7.5 times. After each checkpoint each page of
	// an index is logged as a whole. A slow replica or archive keeps the log for as long as it
	// lags.
	Log int64 `json:"log_bytes"`
}

// Total is the sum of Copy and Log.
func (n Need) Total() int64 { return n.Copy + n.Log }

// Need returns the disk space that a rebuild takes.
func (r *Rebuild) Need(ctx context.Context) (n Need, err error) {
	err = r.retry(ctx, shortTime, func(ctx context.Context) error {
		return r.db.QueryRow(ctx, `
			SELECT sum(size)::bigint * 6 / 5, sum(size)::bigint * 5
			  FROM (SELECT pg_total_relation_size(name::regclass) AS size FROM unnest($1::text[]) AS name) AS t`, r.tables).Scan(&n.Copy, &n.Log)
	})
	if err != nil {
		return Need{}, fmt.Errorf("size of the tables: %w", err)
	}
	return n, nil
}

// CheckDisk returns ErrDisk if free is less than n. free is the free space of the server's disk, as
// Postgres writes a size, such as 40 GB. An operator has to state it, because SQL does not see the
// disk.
func (r *Rebuild) CheckDisk(ctx context.Context, n Need, free string) error {
	var enough bool
	var text string
	err := bounded.Pool{DB: r.db, Limit: shortTime}.Statement(fmt.Sprintf("free disk %q", free),
		`SELECT pg_size_bytes($1) >= $2, pg_size_pretty($2)`, free, n.Total()).Scan(ctx, &enough, &text)
	if err == nil && !enough {
		err = fmt.Errorf("%w: a rebuild needs %s, and %s are free", ErrDisk, text, free)
	}
	return err
}
