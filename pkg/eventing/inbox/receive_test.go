package inbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"
)

// pauses records from the log how long a consumer waits before it opens the next stream.
type pauses struct {
	slog.Handler

	all []time.Duration
}

func (p *pauses) Enabled(context.Context, slog.Level) bool { return true }
func (p *pauses) WithAttrs([]slog.Attr) slog.Handler       { return p }

func (p *pauses) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "retry_in_ms" {
			p.all = append(p.all, time.Duration(a.Value.Int64())*time.Millisecond)
		}
		return true
	})
	return nil
}

// pausesAfter has n streams end, each after some time, and returns the pauses. Time is
// the bubble's.
func pausesAfter(t *testing.T, n int, lasts time.Duration, o Options) []time.Duration {
	t.Helper()
	heard := &pauses{}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		c := &Consumer{log: slog.New(heard), budget: &budget{}, options: o.within(), metrics: &metrics{}}
		c.receive(ctx, func(context.Context, func(context.Context, *pubsub.Message)) error {
			time.Sleep(lasts) //nolint:forbidigo // of the virtual clock: it takes no time
			if len(heard.all) == n {
				end()
			}
			return errors.New("subscription is missing")
		})
	})
	return heard.all
}

// The pauses grow while streams end at once. The end of a stream that lasted is a new
// fault, after which the next stream is opened soon.
func TestPausesGrowOnlyWhileStreamsEndAtOnce(t *testing.T) {
	t.Parallel()
	const n = 40
	longest := func(all []time.Duration) (most time.Duration) {
		for _, pause := range all {
			most = max(most, pause)
		}
		return most
	}
	if most := longest(pausesAfter(t, n, 0, Options{})); most <= outageRetry.Base {
		t.Errorf("up to %s after %d streams that ended at once", most, n)
	}
	if most := longest(pausesAfter(t, n, 2*outageRetry.Cap, Options{})); most > outageRetry.Base {
		t.Errorf("up to %s after streams that lasted", most)
	}
	if most := longest(pausesAfter(t, n, 0, Options{OutageBackoff: quickly})); most > quickly.Cap {
		t.Errorf("up to %s, want no more than the setting's %s", most, quickly.Cap)
	}
}

// Refused streams are counted until one lasts, whether it brings a message or not.
func TestRefusedStreamsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		c := &Consumer{log: slog.New(slog.DiscardHandler), budget: &budget{}, options: Options{}.within(), metrics: &metrics{}}
		var counted []int64
		c.receive(ctx, func(context.Context, func(context.Context, *pubsub.Message)) error {
			counted = append(counted, c.metrics.notPulled.Load())
			if len(counted) == 4 {
				time.Sleep(2 * pullWorks) //nolint:forbidigo // of the virtual clock: it takes no time
				counted = append(counted, c.metrics.notPulled.Load())
				end()
			}
			return errors.New("permission denied")
		})
		if want := []int64{0, 1, 2, 3, 0}; !slices.Equal(counted, want) {
			t.Errorf("%d refusals are counted, want %d", counted, want)
		}
	})
}
