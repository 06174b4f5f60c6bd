// Package inbox measures the consuming side. It compares the inbox with the plain loop, and with
// the limits of the database alone and of the broker alone. The plain loop takes one transaction
// for each message. All measurements get the same events: the creation of each video, then its
// updates. Unless the events come from a broker, they come from memory as fast as they are taken.
package inbox

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/pubsub/v2"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// eventCounts is the number of events in a run. The plain loop gets fewer events.
var eventCounts = [...]int{measure.Quick: 4_000, measure.Normal: 15_000, measure.Full: 100_000}

// Series returns the series.
func Series() []measure.Series {
	return []measure.Series{{
		Title: "inbox: applying events",
		Measurements: []measure.Measurement{
			side("inbox.seed_1", "the plain loop and its tables, one message after the other", plainLoop(1)),
			side("inbox.seed_16", "the same, 16 messages at a time", plainLoop(16)),
			inTurns(plainly, withOffsets, withoutTenants),
			side("inbox.bare_sql", "our tables, 500 events a transaction, nothing decided", bareSQL),
			side("inbox.bare_receive", "local Pub/Sub, ordered: receive and ack, nothing done", stored(bareReceive)),
			side("inbox.pubsub", "ours, from the local Pub/Sub", stored(fromPubSub)),
		},
		Derived: []measure.Derived{
			measure.Ratio("inbox.vs_seed", "inbox.memory", "inbox.seed_1", "8 or more wanted"),
			measure.Ratio("tenant.apply_cost", "inbox.no_tenants", "inbox.memory", "1.08 or less wanted"),
			measure.Ratio("inbox.with_offsets", "inbox.offsets", "inbox.memory", "0.97 or more wanted"),
			{
				Figure:  measure.Figure{Name: "inbox.vs_limit", Unit: "x", Note: "0.8 or more wanted; the limit is 1/(1/bare_receive + 1/bare_sql)"},
				RatioTo: "inbox.bare_receive and inbox.bare_sql", From: []string{"inbox.pubsub", "inbox.bare_receive", "inbox.bare_sql"},
				Compute: func(in []float64) float64 { return in[0] * (1/in[1] + 1/in[2]) },
			},
		},
	}, counters(), huge()}
}

// applying is a function that applies the events in an unused database. It returns events per
// second.
type applying func(context.Context, *rig.ReadModel, []*pubsub.Message) (float64, error)

// side returns a measurement that calls apply with an unused database.
func side(name, note string, apply applying) measure.Measurement {
	return measure.Measurement{
		Figures: []measure.Figure{{Name: name, Unit: "event/s", Note: note}},
		Run: measure.Single(eventCounts, func(ctx context.Context, n int) (_ float64, err error) {
			m, err := rig.StartReadModel(ctx)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, m.Close()) }()
			messages, err := videoMessages(n)
			if err != nil {
				return 0, err
			}
			return apply(ctx, m, messages)
		}),
	}
}

// huge measures the cost of an inbox that has been kept for a long time, and so has many rows.
func huge() measure.Series {
	afterRows := func(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message) (float64, error) {
		if err := fill(ctx, m, 10_000_000); err != nil {
			return 0, err
		}
		return fromMemory(ctx, m, messages)
	}
	return measure.Series{
		Title: "inbox: applying events next to 10,000,000 that were applied before", From: measure.Full, Runs: 3,
		Measurements: []measure.Measurement{
			side("inbox.memory_0_rows", "", fromMemory),
			side("inbox.memory_10m_rows", "", afterRows),
		},
		Derived: []measure.Derived{measure.Ratio("inbox.at_10m_rows", "inbox.memory_10m_rows", "inbox.memory_0_rows", "")},
	}
}

// fill inserts the given number of settled events into the inbox. It creates the indexes
// afterwards, because this takes less time.
func fill(ctx context.Context, m *rig.ReadModel, rows int) error {
	for _, statement := range []string{
		`ALTER TABLE catalog.inbox DROP CONSTRAINT inbox_pkey`,
		`DROP INDEX catalog.inbox_settled`,
		fmt.Sprintf(`
			INSERT INTO catalog.inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time,
			                           status, processed_at)
			SELECT '%s', ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'VideoUpdated', 'video',
			       gen_random_uuid()::text, 1, n::text, now(), 'done', now()
			  FROM generate_series(1, %d) n`, rig.Topic, rows),
		`ALTER TABLE catalog.inbox ADD PRIMARY KEY (consumer, event_id)`,
		`CREATE INDEX inbox_settled ON catalog.inbox (consumer, received_at) WHERE status IN ('done', 'discarded')`,
		`VACUUM (ANALYZE) catalog.inbox`,
		`CHECKPOINT`, // now, not in the middle of the measurement
	} {
		if _, err := m.Admin.Exec(ctx, statement); err != nil {
			return fmt.Errorf("fill the inbox: %w", err)
		}
	}
	return nil
}
