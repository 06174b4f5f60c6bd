package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
)

// hotLoad is the load in events of one aggregate per second.
const hotLoad = 1000

// hot returns the series of one aggregate with many changes.
func hot(p *rig.Postgres) measure.Series {
	return measure.Series{
		Title: fmt.Sprintf("outbox: commit to publish, %d events/s of one aggregate, a publish takes 5 ms", hotLoad),
		Measurements: []measure.Measurement{{
			Figures: []measure.Figure{
				{Name: "relay.hot_events", Unit: "event/s", Note: "until the last one is acknowledged; 1,000 are offered"},
				{Name: "relay.hot_p50_ms", Unit: "ms"}, {Name: "relay.hot_p99_ms", Unit: "ms"},
			},
			Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
				h := &hotAggregate{id: uuid.Must(uuid.NewV7()).String()}
				f, err := rig.StartRelayFixture(ctx, p, rig.Relaying{Relays: 1, Latency: rig.PublishLatency, Acknowledged: h.acknowledged})
				if err != nil {
					return measure.Reading{}, err
				}
				defer func() { err = errors.Join(err, f.Close(ctx)) }()
				return h.run(ctx, f, int(hotLoad*latencyVolumes[size].flood.Seconds()))
			},
		}},
	}
}

// hotAggregate is an aggregate whose writers wait for each other, like writers that wait for the
// lock of a row.
type hotAggregate struct {
	id  string
	row sync.Mutex

	mu                   sync.Mutex
	committed, published []time.Time // by version, from 1 on
}

func (h *hotAggregate) run(ctx context.Context, f *rig.RelayFixture, n int) (measure.Reading, error) {
	start := time.Now()
	if _, err := measure.Offered(ctx, hotLoad, n, func(ctx context.Context, _ int) error { return h.commit(ctx, f) }); err != nil {
		return measure.Reading{}, err
	}
	took, err := h.latencies(ctx)
	return measure.Sampled(n, append([]float64{measure.PerSecond(n, start)}, measure.Percentiles(took, 50, 99)...)...), err
}

// commit commits the next version, and hands it over to the relay.
func (h *hotAggregate) commit(ctx context.Context, f *rig.RelayFixture) error {
	h.row.Lock()
	defer h.row.Unlock()
	e := rig.VideoCreated(uuid.Must(uuid.NewV7()), time.Now().UTC())
	e.AggregateID, e.Version = h.id, int64(len(h.committed)+1)
	return f.Relays.Commit(ctx, f.DB, 0, e, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.committed = append(h.committed, time.Now())
	})
}

// acknowledged records the time at which the next version was acknowledged. The probe checks the
// order of all versions.
func (h *hotAggregate) acknowledged(m *pubsubpb.PubsubMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.GetOrderingKey() == h.id && m.GetAttributes()[eventing.AttrVersion] == strconv.Itoa(len(h.published)+1) {
		h.published = append(h.published, time.Now())
	}
}

// latencies waits until all versions are acknowledged, and returns the time of each version.
func (h *hotAggregate) latencies(ctx context.Context) ([]time.Duration, error) {
	for {
		if took := h.taken(); took != nil {
			return took, nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// taken returns the time of each version from its commit to its acknowledgement. It returns nil if
// a version is not acknowledged yet.
func (h *hotAggregate) taken() (took []time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.published) < len(h.committed) {
		return nil
	}
	for i, at := range h.committed {
		took = append(took, max(0, h.published[i].Sub(at)))
	}
	return took
}
