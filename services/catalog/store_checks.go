package catalog

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/bounded"
)

//go:embed claim_check.sql
var claimCheckSQL string

// claimCheck claims the check of a type of aggregate for holder, if the check is due and no other
// instance holds it. from is the id at which the check continues. A new check begins at start. No
// check is due while a backfill of the type is under way, because rows that are not filled yet
// would set off the alarm for a wrong read model. A backfill that was cut off prevents checks for a
// day after its start.
//
// A stored time may be in the future if the clock was set back. A lease does not count if it ends later than
// checkLease from now. The start or the end of a check does not count if it is in the future: otherwise no
// check would be due until then, and checkAge would not grow. A backfill with a start in the future prevents
// checks only while it has a lease that ends within a day.
func claimCheck(ctx context.Context, db bounded.Pool, aggregateType, start string, holder uuid.UUID, interval time.Duration,
) (from string, due bool, err error) {
	_, err = db.Statement("claim check",
		`INSERT INTO reconcile_checks (aggregate_type) VALUES ($1) ON CONFLICT DO NOTHING`, aggregateType).Exec(ctx)
	if err != nil {
		return "", false, err
	}
	err = db.Statement("claim check", claimCheckSQL,
		aggregateType, pgID(holder), interval.Microseconds(), checkLease.Microseconds(), start).Scan(ctx, &from)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	return from, err == nil, err
}

// saveCheck stores how far holder's check has come, and renews its lease. An empty next says that
// the check is finished. saveCheck returns errCheckLost if another instance holds the check.
func saveCheck(ctx context.Context, db bounded.Pool, aggregateType string, holder uuid.UUID, next string, rows int64) error {
	saved, err := db.Statement("save check", `
		UPDATE reconcile_checks
		   SET next_id = $3, rows_checked = rows_checked + $4,
		       leased_until = CASE WHEN $3 <> '' THEN clock_timestamp() + $5::bigint * interval '1 microsecond' END,
		       finished_at = CASE WHEN $3 = '' THEN clock_timestamp() ELSE finished_at END
		 WHERE aggregate_type = $1 AND holder = $2`, aggregateType, pgID(holder), next, rows, checkLease.Microseconds()).Exec(ctx)
	if err == nil && saved == 0 {
		err = errCheckLost
	}
	return err
}

// checkAge returns how long ago the last complete check of a type of aggregate ended, in any
// instance. Before the first check is complete, it returns how long ago that check began.
func checkAge(ctx context.Context, db bounded.Pool, aggregateType string) (age time.Duration, err error) {
	var seconds float64
	err = db.Statement("read check", `
		SELECT extract(epoch FROM clock_timestamp() - coalesce(finished_at, started_at, clock_timestamp()))::float8
		  FROM reconcile_checks WHERE aggregate_type = $1`, aggregateType).Scan(ctx, &seconds)
	return time.Duration(seconds * float64(time.Second)), err
}

// openRebuild reports whether there is a rebuild that is neither finished nor given up. bytes is
// the size of its copies.
func openRebuild(ctx context.Context, db bounded.Pool) (open bool, bytes int64, err error) {
	err = db.Statement("look for a rebuild", `
		SELECT to_regclass('rebuild_state') IS NOT NULL,
		       (SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint FROM unnest($1::text[]) AS name)`,
		shadows).Scan(ctx, &open, &bytes)
	return open, bytes, err
}
