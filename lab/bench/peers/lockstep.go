package peers

import (
	"context"
	"log/slog"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

// lockstep is our own outbox. The database already has its tables.
type lockstep struct{}

// Schema implements [Peer].
func (lockstep) Schema(context.Context, *pgxpool.Pool) error { return nil }

// Append implements [Peer].
func (lockstep) Append(ctx context.Context, tx pgx.Tx, events []eventing.Event) error {
	return outbox.Append(ctx, tx, nil, events...)
}

// NewRelay implements [Peer].
func (lockstep) NewRelay(db *pgxpool.Pool, client *pubsub.Client) (Relay, error) {
	topics := map[string]string{"video": rig.TopicName(rig.Topic)}
	return lockstepRelay{outbox.NewRelay(db, client, topics, slog.New(slog.DiscardHandler), func() {}, outbox.Options{})}, nil
}

type lockstepRelay struct{ *outbox.Relay }

// Commit implements [Relay].
func (r lockstepRelay) Commit(ctx context.Context, db *pgxpool.Pool, e eventing.Event, committed func()) error {
	return rig.CommitTo(ctx, db, r.Relay, e, committed)
}
