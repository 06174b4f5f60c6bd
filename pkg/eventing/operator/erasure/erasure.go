// Package erasure removes a person's data from the schema of a service, without a gap in
// versions: rows become tombstones, and replicas follow by events.
//
// A service's [Eraser] knows its tables. This package has the part that all services
// share: it erases the records in the audit table (package audit), to which earlier actions of
// operators have moved content of other tables. Each step may be repeated, and an erasure
// that was cut off is run again.
package erasure

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// Options say whose data is erased, and how fast.
type Options struct {
	User uuid.UUID
	// Rate is the most rows per second; 0 is no limit.
	Rate int
	// Wait is how long to wait for the user's events. The owner waits until they are published, and a
	// read model waits until they have deleted its rows.
	Wait time.Duration
}

// Found is the number of things of one kind that have data of the user.
type Found struct {
	// What names the kind, such as "videos".
	What  string `json:"what"`
	Count int64  `json:"count"`
}

// Total is the sum of the counts in all.
func Total(all []Found) (n int64) {
	for _, f := range all {
		n += f.Count
	}
	return n
}

// Eraser erases the data of one user.
type Eraser interface {
	// Find counts the things that have data of the user. The counts are 0 after an erasure
	// that left nothing.
	Find(ctx context.Context) ([]Found, error)
	// Erase removes what Find counts, as far as it can. erased is called after each row.
	Erase(ctx context.Context, by audit.Actor, erased func()) error
	// Owned returns the ids of the given aggregates that belong to the user, deleted ones too.
	Owned(ctx context.Context, aggregateType string, ids []string) ([]string, error)
}

// Run erases all data that e finds, and the records in the audit table about the user's aggregates
// of these types. It returns what is left. It writes two audit entries in the name of by: one
// before the first change, and one with what is left. audit.Forget adds an entry for each
// page of ids of which it removes a record.
func Run(
	ctx context.Context, db *pgxpool.Pool, e Eraser, o Options, by audit.Actor, types []string, erased func(),
) (left []Found, err error) {
	if err := note(ctx, db, "erase", by, o.User, nil); err != nil {
		return nil, err
	}
	if err := e.Erase(ctx, by, erased); err != nil {
		return nil, fmt.Errorf("erase: %w", err)
	}
	err = records(ctx, db, e, types, func(aggregateType string, ids []string) error {
		_, err := audit.Forget(ctx, db, by, aggregateType, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	if left, err = Find(ctx, db, e, types); err != nil {
		return nil, err
	}
	return left, note(ctx, db, "erased", by, o.User, left)
}

// Find counts what Run would remove.
func Find(ctx context.Context, db *pgxpool.Pool, e Eraser, types []string) ([]Found, error) {
	found, err := e.Find(ctx)
	if err != nil {
		return nil, err
	}
	kept := Found{What: "aggregates of which the audit table keeps content"}
	err = records(ctx, db, e, types, func(_ string, ids []string) error {
		kept.Count += int64(len(ids))
		return nil
	})
	return append(found, kept), err
}

// records calls do with the user's aggregates that have records in the audit table.
func records(ctx context.Context, db *pgxpool.Pool, e Eraser, types []string, do func(aggregateType string, ids []string) error) error {
	for _, aggregateType := range types {
		for after, last := "", false; !last; {
			ids, end, err := audit.Recorded(ctx, db, aggregateType, after)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				break
			}
			after, last = ids[len(ids)-1], end
			owned, err := e.Owned(ctx, aggregateType, ids)
			if err == nil && len(owned) > 0 {
				err = do(aggregateType, owned)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// noteTimeout bounds the transaction of one entry.
const noteTimeout = 5 * time.Second

func note(ctx context.Context, db *pgxpool.Pool, action string, by audit.Actor, user uuid.UUID, left []Found) (err error) {
	s := audit.Subject{AggregateType: "user", AggregateID: user.String()}
	if left != nil {
		if s.Record, err = json.Marshal(map[string]any{"left": left}); err != nil {
			return fmt.Errorf("write audit: %w", err)
		}
	}
	return bounded.Pool{DB: db, Limit: noteTimeout}.Tx(ctx, action, func(ctx context.Context, tx pgx.Tx) error {
		return audit.Write(ctx, tx, action, by, s)
	})
}
