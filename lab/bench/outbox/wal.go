package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// fourTrees creates the outbox table in its former form, in which an event is in four B-trees. In
// the present form an event is in three B-trees, and there is room for the mark next to each row.
const fourTrees = `
CREATE TABLE video.outbox_of_four (LIKE video.outbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (fillfactor = 90);
ALTER TABLE video.outbox_of_four DROP COLUMN gapless, ADD PRIMARY KEY (id), ADD UNIQUE (aggregate_type, aggregate_id, version);
CREATE INDEX ON video.outbox_of_four (xact) WHERE published_at IS NULL AND version > 0;
CREATE INDEX ON video.outbox_of_four (aggregate_type COLLATE "C", aggregate_id COLLATE "C", version) WHERE published_at IS NULL;
CREATE INDEX ON video.outbox_of_four (parked_at) WHERE parked_at IS NOT NULL;
CREATE UNIQUE INDEX ON video.outbox_of_four (source_event_id, aggregate_type, aggregate_id) WHERE source_event_id IS NOT NULL;
GRANT SELECT, INSERT, UPDATE ON video.outbox_of_four TO video_service`

// loggedEvents is the number of events that are written, each in its own transaction. The events
// are then published in batches of perRound events.
var loggedEvents = [...]int{measure.Quick: 500, measure.Normal: 5000, measure.Full: 20_000}

const perRound = 100

// wal returns the series of the volume of log that an event makes from its commit to its mark. Full
// pages are not counted, because they depend on the frequency of checkpoints.
func wal(p *rig.Postgres) measure.Series {
	m := measure.Measurement{
		Figures: []measure.Figure{
			{Name: "write.wal_bytes_per_event", Unit: "B", Note: "its transaction with nothing else in it, its lease and its mark"},
			{Name: "write.wal_bytes_per_event_before", Unit: "B", Note: "the same with the table as it was in commit 3a760e5"},
		},
		Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
			d, err := p.CopyOf(ctx, "the outbox of four trees", func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, fourTrees)
				return err
			})
			if err != nil {
				return measure.Reading{}, err
			}
			defer func() { err = errors.Join(err, d.Drop(ctx)) }()
			db, err := d.Pool(ctx, 1)
			if err != nil {
				return measure.Reading{}, err
			}
			defer db.Close()
			var values []float64
			for _, live := range []func(context.Context, *pgxpool.Pool) error{liveNow, liveBefore} {
				n, err := logged(ctx, db, loggedEvents[size], live)
				if err != nil {
					return measure.Reading{}, err
				}
				values = append(values, n)
			}
			return measure.Reading{Values: values}, nil
		},
	}
	return measure.Series{
		Title: "outbox: an event's share of the write-ahead log", Measurements: []measure.Measurement{m},
		Derived: []measure.Derived{
			measure.Ratio("write.wal_vs_before", "write.wal_bytes_per_event", "write.wal_bytes_per_event_before", "0.8 or less wanted"),
		},
	}
}

// logged returns the bytes of the write-ahead log per event.
func logged(ctx context.Context, db *pgxpool.Pool, events int, live func(context.Context, *pgxpool.Pool) error) (float64, error) {
	var from string
	if err := db.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&from); err != nil {
		return 0, err
	}
	for range events / perRound {
		if err := live(ctx, db); err != nil {
			return 0, err
		}
	}
	var bytes float64
	err := db.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::float8`, from).Scan(&bytes)
	return bytes / float64(events), err
}

// liveNow writes, leases and marks perRound events.
func liveNow(ctx context.Context, db *pgxpool.Pool) error {
	var since queue.TxSnapshot
	if err := db.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&since); err != nil {
		return err
	}
	for range perRound {
		e := rig.VideoCreated(uuid.Must(uuid.NewV7()), time.Now().UTC())
		if err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, nil, e) }); err != nil {
			return err
		}
	}
	q := queue.New(db)
	c := queue.Claim{Token: leaseToken, Aggregates: perRound, Events: perRound, PerAggregate: 1, Bytes: 1 << 20}
	got, err := q.ClaimNew(ctx, c, since, nil)
	if err != nil {
		return err
	}
	if len(got.Batches) != perRound {
		return fmt.Errorf("%d events claimed, want %d", len(got.Batches), perRound)
	}
	var settlements []queue.Settlement
	for _, batch := range got.Batches {
		settlements = append(settlements, queue.Settlement{Batch: batch, Published: 1})
	}
	_, err = q.Settle(ctx, leaseToken, settlements)
	return err
}

// leaseToken is the token of all leases in this measurement.
const leaseToken = "a5f8a8e5-60a2-4e5c-bb7e-cf9a1a6a2a11"

// liveBefore does the same as liveNow with the former table. It sends only those of the former
// statements that write.
func liveBefore(ctx context.Context, db *pgxpool.Pool) error {
	ids := make([]uuid.UUID, perRound)
	for i := range ids {
		e := rig.VideoCreated(uuid.Must(uuid.NewV7()), time.Now().UTC())
		ids[i] = e.ID
		_, err := db.Exec(ctx, `
			INSERT INTO outbox_of_four (id, aggregate_type, aggregate_id, event_type, version, schema_version,
				payload, occurred_at, tenant_id, epoch, traceparent)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			e.ID, e.AggregateType, e.AggregateID, e.Type, e.Version, e.SchemaVersion, e.Payload, e.OccurredAt, e.TenantID, e.Epoch, e.TraceParent)
		if err != nil {
			return err
		}
	}
	_, err := db.Exec(ctx, `UPDATE outbox_of_four SET lock_token = $2, locked_at = now() WHERE id = ANY($1)`, ids, leaseToken)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, `
		UPDATE outbox_of_four
		   SET published_at = clock_timestamp(), lock_token = NULL, locked_at = NULL, next_retry_at = NULL, last_error = NULL
		 WHERE id = ANY($1)`, ids)
	return err
}
