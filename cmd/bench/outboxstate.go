package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/cmd/bench/outbox/backlog"
	"example.com/lockstep/cmd/bench/rig/postgres"
	"example.com/lockstep/cmd/bench/rig/relay"
)

// state is one that an outbox gets into.
type state struct {
	name, note string
	wanted     string // of a claim, beside one in an empty outbox
	// fill makes it of an empty outbox; scale is 1 but for a quick run.
	fill func(ctx context.Context, conn *pgx.Conn, scale float64) error
	// held says that a transaction is open since before that.
	held bool
}

const atMostHalfMore = "1.5 or less wanted"

var (
	emptyOutbox = state{name: "empty", note: "nothing else in the table"}
	heldOutbox  = state{
		name: "held_transaction", note: "200,000 rows published under a transaction that is still open", wanted: atMostHalfMore,
		fill: publishedOneByOne(200_000), held: true,
	}
	parkedOutbox = state{
		name: "parked", note: "1,000,000 rows wait behind 1,000 parked aggregates", wanted: atMostHalfMore,
		fill: waiting(1_000_000, true),
	}
	pendingOutbox = state{
		name: "1m_pending", note: "1,000,000 rows of 1,000 aggregates wait", fill: waiting(1_000_000, false),
	}
	publishedOutbox = state{name: "1m_published", note: "1,000,000 published rows", fill: published(1_000_000)}
	hugeOutbox      = state{
		name: "10m_published", note: "10,000,000 published rows", wanted: atMostHalfMore, fill: published(10_000_000),
	}
)

// states are the databases in each state. They live as long as the server.
type states struct {
	server *postgres.Server
	kept   map[string]*postgres.Database
}

// keep returns the database in that state, which is made the first time and stays
// as measurements leave it: they add little to it.
func (k *states) keep(ctx context.Context, s state, scale float64) (_ *postgres.Database, err error) {
	if d := k.kept[s.name]; d != nil {
		return d, nil
	}
	d, err := k.server.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make an outbox %s: %w", s.name, err), d.Drop(ctx))
		}
	}()
	if s.held {
		if err := d.Hold(ctx); err != nil {
			return nil, err
		}
	}
	if s.fill != nil {
		if err := d.AsAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error { return s.fill(ctx, conn, scale) }); err != nil {
			return nil, err
		}
	}
	// What autovacuum does sooner or later, not in the middle of a measurement.
	err = d.AsAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `VACUUM (ANALYZE) video.outbox`)
		return err
	})
	if err != nil {
		return nil, err
	}
	k.kept[s.name] = d
	return d, nil
}

// stateAggregates are those of the rows that fill a state.
const stateAggregates = 1000

// scaled is n, or less in a quick run.
func scaled(n int, scale float64) int { return max(stateAggregates, int(float64(n)*scale)) }

// insertRows inserts the versions from 1 of so many aggregates as the
// administrator; %s is when they were published.
const insertRows = `
	INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at, published_at)
	SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(v::bigint * $2 + a), 12, '0'))::uuid, 'video', $3 || a, 'VideoUpdated', v,
	       $4, now(), %s
	  FROM generate_series(1, $1::int) v, generate_series(0, $2::int - 1) a`

func insertState(ctx context.Context, conn *pgx.Conn, versions int, published string) error {
	_, err := conn.Exec(ctx, fmt.Sprintf(insertRows, published), versions, stateAggregates, "aggregate-", relay.Payload)
	return err
}

// published fills the table without its keys, which are made afterwards: that
// takes less time.
func published(rows int) func(context.Context, *pgx.Conn, float64) error {
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

// publishedOneByOne publishes rows by updates, a version of all aggregates each,
// so that what they were stays where it was.
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

// waiting has rows wait, behind a parked event of each aggregate or not.
func waiting(rows int, parked bool) func(context.Context, *pgx.Conn, float64) error {
	return func(ctx context.Context, conn *pgx.Conn, scale float64) error {
		err := insertState(ctx, conn, scaled(rows, scale)/stateAggregates, "NULL")
		if err == nil && parked {
			_, err = conn.Exec(ctx, `UPDATE video.outbox SET parked_at = now(), last_error = 'no such field' WHERE version = 1`)
		}
		return err
	}
}

// appendBacklog adds a backlog of aggregates of its own, and returns the first
// transaction that may have done it.
func appendBacklog(ctx context.Context, d *postgres.Database, b backlog.Backlog) (since string, err error) {
	err = d.AsAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, `SELECT pg_current_xact_id()::text`).Scan(&since); err != nil {
			return err
		}
		prefix := uuid.NewString()
		_, err := conn.Exec(ctx, `
			INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
			SELECT gen_random_uuid(), 'video', $3 || a, 'VideoUpdated', v, $4
			  FROM generate_series(1, $1::int) v, generate_series(0, $2::int - 1) a`, b.Versions, b.Aggregates, prefix, relay.Payload)
		return err
	})
	return since, err
}
