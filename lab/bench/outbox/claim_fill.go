package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/lab/bench/rig"
)

// stateAggregates is the number of aggregates of the rows that fill a table.
const stateAggregates = 1000

// scaled returns n, or a smaller number in a quick run.
func scaled(n int, scale float64) int { return max(stateAggregates, int(float64(n)*scale)) }

// insertRows inserts the versions 1 to $1 of $2 aggregates. %s stands for the value of
// published_at. An administrator must run it.
const insertRows = `
	INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at, published_at)
	SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(v::bigint * $2 + a), 12, '0'))::uuid, 'video', $3 || a, 'VideoUpdated', v,
	       $4, now(), %s
	  FROM generate_series(1, $1::int) v, generate_series(0, $2::int - 1) a`

func insertState(ctx context.Context, conn *pgx.Conn, versions int, publishedAt string) error {
	_, err := conn.Exec(ctx, fmt.Sprintf(insertRows, publishedAt), versions, stateAggregates, "aggregate-", rig.Payload)
	return err
}

// publishedRows returns a function that fills the table with published rows. It creates the keys
// afterwards, because this takes less time.
func publishedRows(rows int) func(context.Context, *pgx.Conn, float64) error {
	return func(ctx context.Context, conn *pgx.Conn, scale float64) error {
		_, err := conn.Exec(ctx, `
			ALTER TABLE video.outbox DROP CONSTRAINT outbox_pkey, DROP CONSTRAINT outbox_aggregate_type_aggregate_id_version_key`)
		if err != nil {
			return err
		}
		if err := insertState(ctx, conn, scaled(rows, scale)/stateAggregates, "now()"); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, `ALTER TABLE video.outbox ADD PRIMARY KEY (id), ADD UNIQUE (aggregate_type, aggregate_id, version)`)
		return err
	}
}

// publishedOneByOne returns a function that inserts rows and then publishes them by updates. Each
// update publishes one version of all aggregates. The old row versions stay in the table.
func publishedOneByOne(rows int) func(context.Context, *pgx.Conn, float64) error {
	return func(ctx context.Context, conn *pgx.Conn, scale float64) error {
		versions := scaled(rows, scale) / stateAggregates
		if err := insertState(ctx, conn, versions, "NULL"); err != nil {
			return err
		}
		for v := range versions {
			if _, err := conn.Exec(ctx, `UPDATE video.outbox SET published_at = now() WHERE version = $1`, v+1); err != nil {
				return err
			}
		}
		return nil
	}
}

// waitingRows returns a function that inserts waiting rows. If parked is true, the first event of
// each aggregate is parked, and the others wait behind it.
func waitingRows(rows int, parked bool) func(context.Context, *pgx.Conn, float64) error {
	return func(ctx context.Context, conn *pgx.Conn, scale float64) error {
		err := insertState(ctx, conn, scaled(rows, scale)/stateAggregates, "NULL")
		if err == nil && parked {
			_, err = conn.Exec(ctx, `UPDATE video.outbox SET parked_at = now(), last_error = 'no such field' WHERE version = 1`)
		}
		return err
	}
}
