// Package receipt shows what became of an event at the consumers of a service. It shows the event's
// rows in the inbox, and the actions of operators on it.
package receipt

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// queryTimeout bounds each statement.
const queryTimeout = 15 * time.Second

// ErrUnknown is returned for an event that is in neither the inbox nor the audit table. It has not
// arrived, or has left the inbox after the retention.
var ErrUnknown = errors.New("no consumer knows this event: it has not arrived, or left the inbox after its retention")

// Receipt is an event's row in the inbox of one consumer.
type Receipt struct {
	Consumer      string    `json:"consumer"`
	EventID       uuid.UUID `json:"event_id"`
	Type          string    `json:"event_type"`
	AggregateType string    `json:"aggregate_type"`
	AggregateID   string    `json:"aggregate_id"`
	Version       int64     `json:"version"`
	// Status is done (its effect is committed, or it had none), held (seen and not
	// applied), dead (in the dead letters) or discarded (an operator gave its dead letter up).
	Status    string `json:"status"`
	Attempts  int    `json:"attempts"`
	LastError string `json:"last_error,omitempty"`
	// MessageID is Pub/Sub's id of the event's message.
	MessageID string `json:"message_id"`
	// PublishedAt is the time at which Pub/Sub received the message.
	PublishedAt time.Time `json:"published_at"`
	// ReceivedAt is the time at which the consumer wrote the row.
	ReceivedAt time.Time `json:"received_at"`
	// SeenAt is the time of the last delivery.
	SeenAt      time.Time  `json:"seen_at"`
	ProcessedAt *time.Time `json:"processed_at,omitempty"`
}

//go:embed find.sql
var findReceipts string

// Find returns the event's receipts, ordered by consumer, and the actions on the event, oldest
// first. The error is ErrUnknown if there are neither receipts nor actions.
func Find(ctx context.Context, db *pgxpool.Pool, event uuid.UUID) ([]Receipt, []audit.Entry, error) {
	// The inbox's key begins with the consumer. There are few consumers, so the statement looks
	// under each consumer.
	found, err := bounded.Collect(ctx,
		bounded.Pool{DB: db, Limit: queryTimeout}.Statement("read inbox", findReceipts, event), pgx.RowToStructByName[Receipt])
	if err != nil {
		return nil, nil, err
	}
	actions, err := audit.History(ctx, db, event)
	if err == nil && len(found) == 0 && len(actions) == 0 {
		err = ErrUnknown
	}
	return found, actions, err
}
