package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing/checkpoint"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/services/catalog"
)

// applyTurns is the number of turns of each variant in a run. A consumer applies tens of thousands
// of events a second, and the machine's speed changes within seconds. So variants that are applied
// one after the other, each as a whole, differ by up to a tenth for no reason of their own.
const applyTurns = 10

// variant is our consumer while it takes its messages from memory. Its variants differ in what
// prepare does with the unused database, and in the options that it returns.
type variant struct {
	name, note string
	prepare    func(context.Context, *rig.ReadModel) (inbox.Options, error)
}

var (
	plainly        = variant{"inbox.memory", "ours, fed from memory", asItIs}
	withOffsets    = variant{"inbox.offsets", "the same, and the offset of each batch is saved", saveOffsets}
	withoutTenants = variant{
		"inbox.no_tenants", "the same as inbox.memory, without row-level security, with the index of before", removeTenants,
	}
)

func asItIs(context.Context, *rig.ReadModel) (inbox.Options, error) { return inbox.Options{}, nil }

// saveOffsets makes the consumer save the offset of each batch.
func saveOffsets(_ context.Context, m *rig.ReadModel) (inbox.Options, error) {
	offsets := checkpoint.New(m.Pool, catalog.EngagementOffsets, "bench", slog.New(slog.DiscardHandler))
	return inbox.Options{Checkpoints: offsets}, nil
}

// removeTenants removes row-level security, and restores the index from before there were tenants.
// The tables still have the column with the tenant.
func removeTenants(ctx context.Context, m *rig.ReadModel) (inbox.Options, error) {
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
		err = fmt.Errorf("remove tenants: %w", err)
	}
	return inbox.Options{}, err
}

// inTurns returns a measurement of the variants, which take turns of a fraction of a second. Each
// has a database of its own.
func inTurns(variants ...variant) measure.Measurement {
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		n := eventCounts[size]
		sides, stop, err := startVariants(ctx, n, variants)
		defer func() { err = errors.Join(err, stop()) }()
		if err != nil {
			return measure.Reading{}, err
		}
		took := make([]time.Duration, len(sides))
		for turn := range applyTurns {
			for place := range sides {
				// Each turn begins with another side, and every second turn is reversed. So each side follows
				// each other side.
				i := (place + turn) % len(sides)
				if turn%2 == 1 {
					i = len(sides) - 1 - i
				}
				t, err := sides[i].apply(sides[i].messages[turn*n/applyTurns : (turn+1)*n/applyTurns])
				if err != nil {
					return measure.Reading{}, fmt.Errorf("%s: %w", variants[i].name, err)
				}
				took[i] += t
			}
		}
		var r measure.Reading
		for _, t := range took {
			r.Values = append(r.Values, float64(n)/t.Seconds())
		}
		return r, nil
	}}
	for _, v := range variants {
		m.Figures = append(m.Figures, measure.Figure{Name: v.name, Unit: "event/s", Note: v.note})
	}
	return m
}

// applyingVariant is a running variant with all messages that it gets.
type applyingVariant struct {
	*fed

	messages []*pubsub.Message
}

// startVariants starts each variant in an unused database. stop must be called in any case.
func startVariants(ctx context.Context, n int, variants []variant) (sides []applyingVariant, stop func() error, err error) {
	var closers []func() error
	stop = func() (err error) {
		for _, closer := range slices.Backward(closers) {
			err = errors.Join(err, closer())
		}
		return err
	}
	for _, v := range variants {
		m, err := rig.StartReadModel(ctx)
		if err != nil {
			return nil, stop, err
		}
		closers = append(closers, m.Close)
		opts, err := v.prepare(ctx, m)
		if err != nil {
			return nil, stop, err
		}
		messages, err := videoMessages(n)
		if err != nil {
			return nil, stop, err
		}
		f, err := startFed(ctx, m, opts)
		if err != nil {
			return nil, stop, err
		}
		closers = append(closers, f.close)
		sides = append(sides, applyingVariant{f, messages})
	}
	return sides, stop, nil
}

// fromMemory measures our consumer while it takes its messages from memory.
func fromMemory(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message) (_ float64, err error) {
	f, err := startFed(ctx, m, inbox.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	took, err := f.apply(messages)
	return float64(len(messages)) / took.Seconds(), err
}

// fromPubSub measures our consumer while it takes its messages from the local Pub/Sub.
func fromPubSub(ctx context.Context, m *rig.ReadModel, b *rig.BrokerClient, n int) (_ float64, err error) {
	start := time.Now()
	a := startApplier(ctx, m, func(ctx context.Context, h inbox.Handler) error {
		return inbox.NewConsumer(m.Pool, b.Client, rig.Topic, h, slog.New(slog.DiscardHandler), func() {}, inbox.Options{}).Run(ctx)
	})
	defer func() { err = errors.Join(err, a.close()) }()
	err = a.wait(n)
	return measure.PerSecond(n, start), err
}
