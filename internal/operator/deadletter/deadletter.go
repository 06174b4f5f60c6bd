// Package deadletter is the operator's side of an inbox: it shows what a
// consumer could not process and why, and lets a person act on it. Package inbox
// consumes; this package stands beside it, on the same table and on the
// subscriptions `<subscription>.dlq`, and is all that a command line needs.
//
// # Two halves of a dead letter
//
// The inbox row (status dead) says which event, why and after how many attempts,
// and stays. The message has the payload, and stays as long as its subscription
// retains it. Either can be there alone: a message that is no event has no row,
// and a message that has expired, or that another operator has in hand, leaves
// the row behind.
//
// # Taking messages in hand
//
// Pub/Sub cannot be looked into: what is looked at is leased, and hidden from
// everybody else meanwhile. A Hand holds what Collect pulled; Release gives back
// what has not been settled. Should the process die before, the messages come
// back after ten minutes. Nothing is acknowledged before its effect, and the
// audit entry of it, are committed (package audit).
//
// # What can be done
//
// Redrive applies the event in one transaction with its inbox row, as the
// consumer would have, and never publishes: other subscribers see nothing of it.
// A row that is done short-circuits, so redriving is safe against another
// operator, the consumer, and itself. Events of one aggregate go in version
// order, and when one fails those behind it are left alone. Discard gives a dead
// letter up, once its aggregate has its owner's state; the audit entry keeps the
// message.
//
// # An id that was used twice
//
// A letter is its event's id, aggregate and version together, as a row of the inbox
// is. Of two events with one id only the first has a row. The other one's letter is
// its message, which cannot be redriven.
package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/operator/audit"
)

// queryTimeout bounds the statements that apply nothing.
const queryTimeout = 15 * time.Second

// MaxLetters is how many dead letters are looked at, at most. Whoever has more
// settles these first.
const MaxLetters = 10_000

// Box is the dead letters of some subscriptions.
type Box struct {
	db      *pgxpool.Pool
	client  *vkit.SubscriptionAdminClient
	project string
	// consumers are the subscriptions whose dead letters these are.
	consumers []string
}

// New returns the dead letters of subscriptions of client's project. The inbox is
// the one that db's search_path finds.
func New(db *pgxpool.Pool, client *pubsub.Client, subscriptions ...string) *Box {
	return &Box{db: db, client: client.SubscriptionAdminClient, project: client.Project(), consumers: subscriptions}
}

// source is the full name of the subscription that holds a consumer's dead letters.
func (b *Box) source(consumer string) string {
	return "projects/" + b.project + "/subscriptions/" + consumer + ".dlq"
}

// Letter is one dead letter: what is known of it from the inbox, the message, or
// both.
type Letter struct {
	// Subscription is that of the consumer who could not process it.
	Subscription string `json:"subscription"`
	// EventID is uuid.Nil for a message that is no event.
	EventID       uuid.UUID `json:"event_id"`
	AggregateType string    `json:"aggregate_type"`
	AggregateID   string    `json:"aggregate_id"`
	Version       int64     `json:"version"`
	Type          string    `json:"event_type"`
	// Status is that of the inbox row; "none" where there is no row. A letter
	// that is done was applied since, and only its message is left.
	Status string `json:"status"`
	// Reason and Attempts are the inbox row's, else the message's.
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
	// Since is when the event was first received, or its message published.
	Since time.Time `json:"since"`
	// MessageID is the first message's; empty when there is none in hand.
	MessageID string `json:"message_id"`
	// Messages counts the copies in hand: a crash may have left a second one.
	Messages int `json:"messages"`
}

// ID is what an operator calls the letter: its event's id or, where the message
// is no event, the message's, which only its subscription tells from others.
func (l Letter) ID() string {
	if l.EventID == uuid.Nil {
		return l.MessageID
	}
	return l.EventID.String()
}

// place tells l from all other letters. A producer may have used an id twice.
func (l Letter) place() string {
	return fmt.Sprint(l.Subscription, "/", l.ID(), "/", l.AggregateType, "/", l.AggregateID, "/", l.Version)
}

// Same reports whether other is the same dead letter.
func (l Letter) Same(other Letter) bool { return l.place() == other.place() }

func (l Letter) subject() audit.Subject {
	return audit.Subject{
		EventID: l.EventID, MessageID: l.MessageID,
		AggregateType: l.AggregateType, AggregateID: l.AggregateID, Version: l.Version,
	}
}

// rows returns the letters that the inbox knows of: the dead ones, and those
// that the messages in hand name, whatever became of them.
func (b *Box) rows(ctx context.Context, named []*message) ([]Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	consumers, events := make([]string, len(named)), make([]pgtype.UUID, len(named))
	for i, m := range named {
		consumers[i], events[i] = m.consumer, pgtype.UUID{Bytes: m.event.ID, Valid: true}
	}
	rows, _ := b.db.Query(ctx, `
		SELECT consumer, event_id, aggregate_type, aggregate_id, version, event_type, status,
		       coalesce(last_error, ''), attempts, received_at
		  FROM inbox
		 WHERE (consumer, event_id) IN (
		       SELECT c, e FROM unnest($2::text[], $3::uuid[]) AS named (c, e)
		        UNION
		       (SELECT consumer, event_id FROM inbox WHERE consumer = ANY ($1) AND status = 'dead' ORDER BY received_at LIMIT $4))`,
		b.consumers, consumers, events, MaxLetters)
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Letter, err error) {
		return l, row.Scan(&l.Subscription, &l.EventID, &l.AggregateType, &l.AggregateID, &l.Version, &l.Type, &l.Status,
			&l.Reason, &l.Attempts, &l.Since)
	})
	if err != nil {
		return nil, fmt.Errorf("read inbox: %w", err)
	}
	return letters, nil
}

// History returns what was done to an event by hand, oldest first.
func (b *Box) History(ctx context.Context, event uuid.UUID) ([]audit.Entry, error) {
	return audit.History(ctx, b.db, event)
}

// record is a message as the audit table keeps it.
func record(m *message) (json.RawMessage, error) {
	if m == nil {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"message_id": m.id, "data": m.data, "attributes": m.attributes, "ordering_key": m.key,
	})
}
