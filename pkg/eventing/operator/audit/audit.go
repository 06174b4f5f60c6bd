// Package audit records the actions that people perform on events by hand: the
// person, the time, the reason, and the data that the action removed.
//
// An entry is written in the transaction of the action itself, so neither
// exists without the other. There are two exceptions, because the action is not one
// transaction. The entry of an offset reset is committed before the seek. An erasure
// has an entry before its first change and one after its last. The service's role may
// insert and read entries, but not change or delete them. The table `operator_actions`
// is found through the connection's search_path.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/bounded"
)

// queryTimeout bounds each statement that is not part of a caller's transaction.
const queryTimeout = 5 * time.Second

// Actor is the origin of an action: the person and the reason.
type Actor struct {
	// By is the name that the person gave. The database also records the role
	// that was logged in.
	By string
	// Why is the reason that the person gave. It may be empty.
	Why string
}

// Validate returns an error that names the missing field.
func (a Actor) Validate() error {
	if strings.TrimSpace(a.By) == "" {
		return errors.New("by: missing")
	}
	return nil
}

// Subject is the event or message that an action was performed on.
type Subject struct {
	// EventID is uuid.Nil if the message was no event.
	EventID uuid.UUID
	// MessageID is the broker's id; empty if no message was involved.
	MessageID     string
	AggregateType string
	AggregateID   string
	Version       int64
	// Record is the data that the action removed, as JSON; nil if it removed
	// none.
	Record json.RawMessage
}

// Write inserts an entry for each subject within tx.
func Write(ctx context.Context, tx pgx.Tx, action string, a Actor, subjects ...Subject) error {
	if err := a.Validate(); err != nil {
		return fmt.Errorf("write audit: %w", err)
	}
	b := &pgx.Batch{}
	for _, s := range subjects {
		var record *string // as text, which works in every query mode
		if s.Record != nil {
			text := string(s.Record)
			record = &text
		}
		b.Queue(`
			INSERT INTO operator_actions (action, actor, why, event_id, message_id, aggregate_type, aggregate_id, version, record)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb)`,
			action, a.By, a.Why, uuid.NullUUID{UUID: s.EventID, Valid: s.EventID != uuid.Nil},
			s.MessageID, s.AggregateType, s.AggregateID, s.Version, record)
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("write audit: %w", err)
	}
	return nil
}

// Entry is one recorded action.
type Entry struct {
	At           time.Time       `json:"at"`
	Action       string          `json:"action"`
	By           string          `json:"by"`
	DatabaseRole string          `json:"database_role"`
	Why          string          `json:"why"`
	Record       json.RawMessage `json:"record,omitempty"`
}

// History returns the actions on an event, oldest first.
func History(ctx context.Context, db *pgxpool.Pool, event uuid.UUID) ([]Entry, error) {
	return bounded.Collect(ctx, bounded.Pool{DB: db, Limit: queryTimeout}.Statement("read audit", `
		SELECT at, action, actor AS by, database_role, why, record
		  FROM operator_actions
		 WHERE event_id = $1
		 ORDER BY id`, event), pgx.RowToStructByName[Entry])
}

// recordedPage bounds the ids that one call of Recorded returns.
const recordedPage = 500

// Recorded returns the ids of aggregates of a type that have entries with a Record, in order. It
// returns up to 500 ids that follow the id after. last is true if no more ids follow.
func Recorded(ctx context.Context, db *pgxpool.Pool, aggregateType, after string) (ids []string, last bool, err error) {
	ids, err = bounded.Collect(ctx, bounded.Pool{DB: db, Limit: queryTimeout}.Statement("read audit", `
		SELECT DISTINCT aggregate_id FROM operator_actions
		 WHERE aggregate_type = $1 AND aggregate_id > $2 AND record IS NOT NULL
		 ORDER BY aggregate_id LIMIT $3`, aggregateType, after, recordedPage), pgx.RowTo[string])
	return ids, len(ids) < recordedPage, err
}

// Naming selects from ids the aggregates that have an entry with the string text in its Record. text is,
// for example, a person's id. If a Record is a message, its field data has the message's data in base64.
// Naming decodes that field, and looks for text in the data, too.
func Naming(ctx context.Context, db *pgxpool.Pool, aggregateType string, ids []string, text string) ([]string, error) {
	return bounded.Collect(ctx, bounded.Pool{DB: db, Limit: queryTimeout}.Statement("read audit", `
		SELECT DISTINCT aggregate_id FROM operator_actions
		 WHERE aggregate_type = $1 AND aggregate_id = ANY ($2::text[]) AND record IS NOT NULL
		   AND (strpos(record::text, $3) > 0
		        OR CASE WHEN record->>'data' ~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$'
		           THEN position(convert_to($3, 'UTF8') IN decode(record->>'data', 'base64')) > 0 END)
		 ORDER BY aggregate_id`, aggregateType, ids, text), pgx.RowTo[string])
}

// Forget removes the Record of all entries about these aggregates, because it may hold a person's
// text, and returns the number of these entries. Action, person, time and reason stay. If there was
// a Record, Forget adds an entry with that number, in the name of the Actor a.
func Forget(ctx context.Context, db *pgxpool.Pool, a Actor, aggregateType string, ids []string) (forgotten int64, err error) {
	if err := a.Validate(); err != nil {
		return 0, fmt.Errorf("forget records: %w", err)
	}
	err = bounded.Pool{DB: db, Limit: queryTimeout}.Statement("forget records", `
		SELECT operator_actions_forget($1, $2::text[], $3, $4)`, aggregateType, ids, a.By, a.Why).Scan(ctx, &forgotten)
	return forgotten, err
}
