package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// checkBegan returns the time at which the check of a type of aggregate began that has not
// ended since. The first check keeps it until its end, whichever instances continue it.
func checkBegan(ctx context.Context, db *pgxpool.Pool, aggregateType string) (began time.Time, err error) {
	err = db.QueryRow(ctx, `SELECT coalesce(started_at, now()) FROM reconcile_checks WHERE aggregate_type = $1`, aggregateType).Scan(&began)
	if err != nil {
		return began, fmt.Errorf("read the begin of a check: %w", err)
	}
	return began, nil
}
