// Package deadletter is the operator's side of an inbox: it shows the events
// that a consumer could not process, with the reasons, and performs an
// operator's actions on them. Package inbox consumes; this package works on the
// same table and on the subscriptions `<subscription>.dlq`, and is all that a
// command line needs.
//
// # Two halves of a dead letter
//
// The inbox row (status dead) has the event's id, the reason and the number of
// attempts, and stays. The message has the payload, and exists as long as its
// subscription retains it. Either can exist alone: a message that is no event
// has no row, and a row has no message after the message has expired or while
// another operator has it leased.
//
// # Leasing messages
//
// Pub/Sub has no way to read messages without taking them. So the messages that are shown are
// leased, and meanwhile hidden from all other consumers. A Batch holds the messages that Collect
// pulled. Release gives back the messages that have not been settled. If the process dies before
// Release, these messages come back after ten minutes. A message is acknowledged only after its
// effect and the audit entry are committed (package audit). Only Erase acknowledges the message before the
// commit.
//
// # What can be done
//
// Redrive applies the event in one transaction with its inbox row, as the consumer would have done.
// It never publishes, so other subscribers see nothing of it. It does nothing if the row has the
// status done, so it is safe next to another operator or the consumer, and may be repeated. The
// letters of a Batch are in version order within an aggregate. If one fails, the caller should not
// redrive the later ones of its aggregate, as `dlq redrive` does not. Discard gives a dead letter up,
// once its aggregate has its owner's state. The audit entry keeps the message.
//
// # An id that was used twice
//
// A dead letter is identified by its event's id, aggregate and version together, like a row of the
// inbox. If two events have the same id, only the first has a row. The dead letter of the second
// has only its message, and cannot be redriven.
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

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// queryTimeout bounds the statements that apply no event.
const queryTimeout = 15 * time.Second

// MaxLetters bounds the number of dead letters in one Batch. If there are more,
// the operator settles these first.
const MaxLetters = 10_000

// Queue gives access to the dead letters of some subscriptions.
type Queue struct {
	db      bounded.Pool
	client  *vkit.SubscriptionAdminClient
	project string
	handler inbox.Handler
	// consumers are the subscriptions that the dead letters come from.
	consumers []string
}

// New returns the dead letters of subscriptions of client's project. handler applies their events,
// and is the handler of the consumers. The inbox is found through db's search_path.
func New(db *pgxpool.Pool, client *pubsub.Client, handler inbox.Handler, subscriptions ...string) *Queue {
	return &Queue{
		db: bounded.Pool{DB: db, Limit: queryTimeout}, client: client.SubscriptionAdminClient, project: client.Project(),
		handler: handler, consumers: subscriptions,
	}
}

// source is the full name of the subscription that holds a consumer's dead letters.
func (q *Queue) source(consumer string) string {
	return "projects/" + q.project + "/subscriptions/" + consumer + ".dlq"
}

// Letter is one dead letter, as known from the inbox, the message, or both.
type Letter struct {
	// Subscription is the subscription of the consumer that could not process the event.
	Subscription string `json:"subscription"`
	// EventID is uuid.Nil for a message that is no event.
	EventID       uuid.UUID `json:"event_id"`
	AggregateType string    `json:"aggregate_type"`
	AggregateID   string    `json:"aggregate_id"`
	Version       int64     `json:"version"`
	Type          string    `json:"event_type"`
	// Status is the status of the inbox row, or "none" if there is no row. "done" means that the
	// event has been applied since, and only its message is left.
	Status string `json:"status"`
	// Reason is the reason why the event was not processed. It comes from the inbox row if there is one,
	// else from the message. If the broker, and not the consumer, dead-lettered the message, Reason says so.
	Reason string `json:"reason"`
	// Attempts is the number of the consumer's attempts. It comes from the same source as Reason.
	Attempts int `json:"attempts"`
	// Since is the time when the event was first received, if there is an inbox row. Otherwise it is the
	// time when the dead letter's message was published.
	Since time.Time `json:"since"`
	// MessageID is the id of the first message. It is empty if no message is leased.
	MessageID string `json:"message_id"`
	// Messages counts the leased copies of the message. A crash may have left a second copy.
	Messages int `json:"messages"`
}

// ID is the operator's name for the dead letter. It is the event's id or, if the message is no
// event, the message id. A message id is unique within its subscription only.
func (l Letter) ID() string {
	if l.EventID == uuid.Nil {
		return l.MessageID
	}
	return l.EventID.String()
}

// place identifies l among all dead letters. The id alone does not identify l, because a producer
// may have used the id twice.
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

// rows returns the dead letters in the inbox, and the rows that the leased
// messages name, with any status.
func (q *Queue) rows(ctx context.Context, named []*message) ([]Letter, error) {
	consumers, events := make([]string, len(named)), make([]pgtype.UUID, len(named))
	for i, m := range named {
		consumers[i], events[i] = m.consumer, pgtype.UUID{Bytes: m.event.ID, Valid: true}
	}
	return bounded.Collect(ctx, q.db.Statement("read inbox", `
		SELECT consumer AS subscription, event_id, aggregate_type, aggregate_id, version, event_type AS type, status,
		       coalesce(last_error, '') AS reason, attempts, received_at AS since
		  FROM inbox
		 WHERE (consumer, event_id) IN (
		       SELECT c, e FROM unnest($2::text[], $3::uuid[]) AS named (c, e)
		        UNION
		       (SELECT consumer, event_id FROM inbox WHERE consumer = ANY ($1) AND status = 'dead' ORDER BY received_at LIMIT $4))`,
		q.consumers, consumers, events, MaxLetters), pgx.RowToStructByNameLax[Letter])
}

// record returns a message in the form that the audit table keeps. Its text is storable, because jsonb refuses
// a zero byte in a text, and a message of which no record can be kept could not be discarded.
func record(m *message) (json.RawMessage, error) {
	if m == nil {
		return nil, nil
	}
	attributes := make(map[string]string, len(m.attributes))
	for key, value := range m.attributes {
		attributes[eventing.Storable(key)] = eventing.Storable(value)
	}
	return json.Marshal(map[string]any{
		"message_id": m.id, "data": m.data, "attributes": attributes, "ordering_key": eventing.Storable(m.key),
	})
}
