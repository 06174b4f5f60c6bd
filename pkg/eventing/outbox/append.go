package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
)

// MaxPayloadBytes is the largest payload that Append takes. Pub/Sub would take
// 10 MB; a relay holds a few thousand events in memory, and whatever is larger
// than this belongs in object storage, with its address in the event (the
// claim-check pattern).
const MaxPayloadBytes = 256 << 10

// Append writes events to the outbox within tx. They become visible to the
// relay when tx commits, and are gone when it rolls back.
//
// The statements queued on with, which may be nil, travel in the same round
// trip, ahead of the events: an owner queues the statement that changes its row
// there, so that row and event cost one round trip together. Their callbacks
// have run when Append returns.
//
// Nothing is sent when an event is invalid; the error names the field. A second
// event for one (aggregate type, aggregate id, version) is refused by the
// database (SQLSTATE 23505), which aborts tx. After any error the caller rolls
// back.
func Append(ctx context.Context, tx pgx.Tx, with *pgx.Batch, events ...eventing.Event) error {
	b := with
	if b == nil {
		b = &pgx.Batch{}
	}
	for _, e := range events {
		if err := check(e); err != nil {
			return fmt.Errorf("append event: %w", err)
		}
		b.Queue(`
			INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, schema_version,
			                    payload, occurred_at, tenant_id, epoch, traceparent)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			e.ID, e.AggregateType, e.AggregateID, e.Type, e.Version, e.SchemaVersion,
			e.Payload, e.OccurredAt, e.TenantID, e.Epoch, e.TraceParent)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("append event: %w", err)
	}
	return nil
}

func check(e eventing.Event) error {
	if len(e.Payload) > MaxPayloadBytes {
		return fmt.Errorf("payload: %d bytes, at most %d", len(e.Payload), MaxPayloadBytes)
	}
	return e.Validate()
}
