package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/bounded"
)

// Position is the position of a group. If the group has saved nothing, only Group and
// Subscription are set.
type Position struct {
	Group        string `db:"consumer_group" json:"group"`
	Subscription string `json:"subscription"`
	// SafePosition is a publish time. The messages from before this time that the broker has delivered were
	// applied. So no effect is lost if a seek to SafePosition, or to an earlier time, acknowledges them. No
	// table has the messages that the broker has not delivered yet. For a seek while there is a backlog,
	// and for a seek to the first message, see Retention. The view's migrations have the rule of
	// SafePosition and its limits.
	SafePosition time.Time `json:"safe_position"`
	// PublishTime is the greatest publish time that any instance has saved. A seek to that time is
	// not safe.
	PublishTime time.Time `json:"publish_time"`
	// OldestHeld is the publish time of the oldest event that waits in the inbox.
	OldestHeld *time.Time `json:"oldest_held,omitempty"`
	// Instances is how many instances have saved within the last hour before UpdatedAt.
	Instances int64     `json:"instances"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Row is one row of the table.
type Row struct {
	Instance string `json:"instance"`
	// Source is "save" for the row of an instance, "reset" for the row of an operator's reset, and
	// "start" for the row of a deployment.
	Source string `json:"source"`
	Offset
	LagMillis int64     `json:"lag_ms"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
}

// Load returns the group's position.
func (s *Store) Load(ctx context.Context) (Position, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.load(ctx, s.db.DB)
}

// load reads the position from a pool, or within a transaction. If a row was saved in the future, the
// database's clock was set back since. Then the times of the saves do not tell which instances still
// work, so each row counts.
func (s *Store) load(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
},
) (Position, error) {
	rows, _ := db.Query(ctx, `
		SELECT consumer_group, subscription, least(safe_position, (
		         SELECT min(o.publish_time) - $3::interval FROM `+s.table+` AS o
		          WHERE o.consumer_group = $1 AND o.subscription = $2 HAVING max(o.updated_at) > clock_timestamp() + interval '1 minute'
		       )) AS safe_position, publish_time, oldest_held, instances, updated_at
		  FROM `+pgx.Identifier{s.names.Table + "_by_group"}.Sanitize()+`
		 WHERE consumer_group = $1 AND subscription = $2`, s.names.Group, s.names.Subscription, margin)
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Position])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Position{Group: s.names.Group, Subscription: s.names.Subscription}, nil
	case err != nil:
		return Position{}, fmt.Errorf("load offset: %w", err)
	}
	return p, nil
}

// Rows returns the rows of the group. The row that was written last comes first.
func (s *Store) Rows(ctx context.Context) ([]Row, error) {
	return bounded.Collect(ctx, s.db.Statement("load offsets", `
		SELECT instance, source, message_id, publish_time, lag_millis, updated_at, updated_by FROM `+s.table+`
		 WHERE consumer_group = $1 ORDER BY updated_at DESC, instance`, s.names.Group), pgx.RowToStructByName[Row])
}
