package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

const (
	// lowLoad is the low load in events per second. It takes a small part of the capacity of a
	// core.
	lowLoad = 400
	// slicesOfLatency is the number of slices of a run. Each slice measures the relay and the bare
	// client, so that both meet the same state of the machine.
	slicesOfLatency = 10
)

// latencyVolumes has the number of events that are timed at low load, and the duration of a flood.
var latencyVolumes = [...]struct {
	samples int
	flood   time.Duration
}{
	measure.Quick:  {100, 200 * time.Millisecond},
	measure.Normal: {1_000, 700 * time.Millisecond},
	measure.Full:   {5_000, 3 * time.Second},
}

// suffixes are the ends of the names of figures, by the number of relays.
var suffixes = map[int]string{1: "", 4: "_4_relays"}

// latency returns the series of the time from the end of a commit to the broker's acknowledgement.
// At low load, the time is compared with bare publishes. Under higher loads, the load is a part of
// the rate that writers and relays reach together.
func latency(p *rig.Postgres) []measure.Series {
	low := measure.Series{Title: fmt.Sprintf("outbox: commit to publish at low load, %d events/s, a publish takes 5 ms", lowLoad)}
	for _, relays := range []int{1, 4} {
		suffix := suffixes[relays]
		low.Measurements = append(low.Measurements, atLowLoad(p, relays, suffix))
		low.Derived = append(low.Derived, measure.Derived{
			Figure:  measure.Figure{Name: "relay.p99_over_publish_ms" + suffix, Unit: "ms", Note: "the difference of the two; 5 or less wanted"},
			RatioTo: "",
			From:    []string{"relay.low_load_p99_ms" + suffix, "relay.publish_p99_ms" + suffix},
			Compute: func(in []float64) float64 { return in[0] - in[1] },
		})
	}
	half := measure.Series{Title: "outbox: commit to publish under load, a publish takes 5 ms"}
	for _, relays := range []int{1, 4} {
		half.Measurements = append(half.Measurements, underLoads(p, relays, suffixes[relays]))
		half.Derived = append(half.Derived, measure.HalfLoadTail("relay", suffixes[relays], "2.5 or less wanted"))
	}
	return []measure.Series{low, half, hot(p)}
}

// atLowLoad returns a measurement of events through the relay and of bare publishes, in turns.
func atLowLoad(p *rig.Postgres, relays int, suffix string) measure.Measurement {
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		f, err := rig.StartRelayFixture(ctx, p, rig.Relaying{Relays: relays, Latency: rig.PublishLatency})
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, f.Close(ctx)) }()
		return lowLoadSlices(ctx, f, latencyVolumes[size].samples/slicesOfLatency)
	}}
	for _, name := range []string{"publish_p50_ms", "publish_p99_ms", "low_load_p50_ms", "low_load_p99_ms"} {
		m.Figures = append(m.Figures, measure.Figure{Name: "relay." + name + suffix, Unit: "ms"})
	}
	return m
}

// lowLoadSlices takes n samples of bare publishes and n samples of events through the relay in each
// slice.
func lowLoadSlices(ctx context.Context, f *rig.RelayFixture, n int) (measure.Reading, error) {
	publish := func(ctx context.Context, _ int) error { return publishOne(ctx, f.Probe) }
	var bare, relayed []time.Duration
	for range slicesOfLatency {
		took, err := measure.Paced(ctx, lowLoad, n, publish)
		if err != nil {
			return measure.Reading{}, err
		}
		bare = append(bare, took...)
		if _, err = measure.Paced(ctx, lowLoad, n, f.CommitOne); err != nil {
			return measure.Reading{}, err
		}
		if took, err = f.CommitsToPublishes(ctx); err != nil {
			return measure.Reading{}, err
		}
		relayed = append(relayed, took...)
	}
	values := append(measure.Percentiles(bare, 50, 99), measure.Percentiles(relayed, 50, 99)...)
	return measure.Sampled(len(relayed), values...), nil
}

// underLoads returns a measurement of the time under load. It first measures the rate that writers
// and relays reach together.
func underLoads(p *rig.Postgres, relays int, suffix string) measure.Measurement {
	const note = "one event a transaction, written and relayed on one machine"
	full := measure.Figure{Name: "relay.full_load" + suffix, Unit: "event/s", Note: note}
	return measure.Measurement{
		Figures: append([]measure.Figure{full}, measure.LoadFigures("relay", suffix)...),
		Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
			f, err := rig.StartRelayFixture(ctx, p, rig.Relaying{Relays: relays, Latency: rig.PublishLatency})
			if err != nil {
				return measure.Reading{}, err
			}
			defer func() { err = errors.Join(err, f.Close(ctx)) }()
			limit := latencyVolumes[size].flood
			full, err := f.Flood(ctx, limit)
			if err != nil {
				return measure.Reading{}, err
			}
			values, err := measure.UnderLoads(ctx, full, limit, f.CommitOne, f.CommitsToPublishes)
			return measure.Reading{Values: append([]float64{full}, values...)}, err
		},
	}
}

// publishOne publishes one message that has a new key.
func publishOne(ctx context.Context, probe *rig.BrokerProbe) error {
	r := row{
		ID: uuid.Must(uuid.NewV7()), EventType: "VideoCreated", Version: 1, SchemaVersion: 1,
		Payload: rig.Payload, OccurredAt: time.Now(),
	}
	r.AggregateID = r.ID.String()
	return rig.Publish(ctx, probe.Client, r.message())
}
