package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing/checkpoint"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/services/catalog"
)

// fromMemory measures our consumer while it takes its messages from memory.
func fromMemory(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message) (float64, error) {
	return supplied(ctx, m, messages, inbox.Options{})
}

// withoutTenants is like fromMemory, but without row-level security, and with the index from before
// there were tenants. The tables still have the column with the tenant.
func withoutTenants(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message) (float64, error) {
	_, err := m.Admin.Exec(ctx, `
		DO $$
		DECLARE
		  line text;
		BEGIN
		  FOR line IN
		    SELECT format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY', c.oid::regclass)
		      FROM pg_class c WHERE c.relrowsecurity
		  LOOP
		    EXECUTE line;
		  END LOOP;
		END $$;
		DROP INDEX catalog.video_projection_of_tenant;
		CREATE INDEX ON catalog.video_projection (video_id) WHERE deleted_at IS NULL`)
	if err != nil {
		return 0, fmt.Errorf("remove tenants: %w", err)
	}
	return fromMemory(ctx, m, messages)
}

// withOffsets is like fromMemory, but the consumer also saves the offset of each batch.
func withOffsets(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message) (float64, error) {
	offsets := checkpoint.New(m.Pool, catalog.EngagementOffsets, "bench", slog.New(slog.DiscardHandler))
	return supplied(ctx, m, messages, inbox.Options{Checkpoints: offsets})
}

func supplied(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message, opts inbox.Options) (float64, error) {
	client, err := rig.UnreachableClient(ctx)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return until(ctx, m, len(messages), func(ctx context.Context, h inbox.Handler) error {
		c := inbox.NewConsumer(m.Pool, client, rig.Topic, h, slog.New(slog.DiscardHandler), func() {}, opts)
		return c.RunFrom(ctx, func(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
			for _, message := range messages {
				deliver(ctx, message)
			}
			<-ctx.Done()
			return nil
		})
	})
}

func fromPubSub(ctx context.Context, m *rig.ReadModel, b *rig.BrokerClient, n int) (float64, error) {
	return until(ctx, m, n, func(ctx context.Context, h inbox.Handler) error {
		c := inbox.NewConsumer(m.Pool, b.Client, rig.Topic, h, slog.New(slog.DiscardHandler), func() {}, inbox.Options{})
		return c.Run(ctx)
	})
}

// counting is a handler that closes the channel soon when it has applied n events.
type counting struct {
	inbox.Handler

	n, applied int
	soon       chan struct{}
}

func (c *counting) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	outcomes, err := c.Handler.Apply(ctx, tx, changes)
	if c.applied += len(outcomes); err == nil && c.applied == c.n {
		close(c.soon)
	}
	return outcomes, err
}

// until returns the rate at which a consumer applies n events. run runs the consumer with the
// handler that until passes.
func until(
	ctx context.Context, m *rig.ReadModel, n int, run func(context.Context, inbox.Handler) error,
) (float64, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	// When soon is closed, the last events are applied but not committed. The commit follows very
	// soon.
	h := &counting{Handler: m.Projector.Handler(), n: n, soon: make(chan struct{})}
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- run(running, h) }()
	select {
	case <-h.soon:
	case err := <-ended:
		return 0, errors.Join(errors.New("the consumer has ended"), err)
	}
	for versions := 0; versions < n; {
		err := m.Pool.QueryRow(ctx, `SELECT coalesce(sum(version), 0) FROM video_projection`).Scan(&versions)
		if err != nil {
			return 0, err
		}
	}
	rate := measure.PerSecond(n, start)
	stop()
	return rate, <-ended
}
