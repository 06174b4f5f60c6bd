// Package visible measures the whole path of an event. The path begins at the end of the owner's
// commit, and ends at the end of the commit that makes the event visible to readers. It includes
// the relay, a local Pub/Sub in its own process, and the consumer. At low load the package measures
// the whole path and its parts. Under higher loads it measures the whole path.
package visible

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// lightLoad is the low load in events per second. At this load the pair is idle most of the time.
const lightLoad = 100

// volumes has the number of events that are timed, and the duration of a flood, by size.
var volumes = [...]struct {
	samples int
	flood   time.Duration
}{measure.Quick: {100, 200 * time.Millisecond}, measure.Normal: {500, 700 * time.Millisecond}, measure.Full: {5_000, 5 * time.Second}}

// Series returns the series.
func Series(p *rig.Postgres) []measure.Series {
	figures := []measure.Figure{{Name: "visible.p50_ms", Unit: "ms"}, {Name: "visible.p99_ms", Unit: "ms", Note: "50 or less wanted"}}
	for _, leg := range legs {
		for _, p := range []string{"_p50_ms", "_p99_ms"} {
			figures = append(figures, measure.Figure{Name: "visible." + leg + p, Unit: "ms"})
		}
	}
	return []measure.Series{
		{
			Title:        fmt.Sprintf("commit to visible at low load, %d events/s, ordered, local Pub/Sub", lightLoad),
			Measurements: []measure.Measurement{{Figures: figures, Run: through(p, 1, lowLoad)}},
		},
		underLoads(p),
		tenants(p),
	}
}

// through returns a run that calls once with a new pipeline.
func through(
	p *rig.Postgres, relays int, once func(context.Context, *pipeline, measure.Size) (measure.Reading, error),
) measure.Run {
	return func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		l, err := startPipeline(ctx, p, relays)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, l.Close(ctx)) }()
		return once(ctx, l, size)
	}
}

func lowLoad(ctx context.Context, l *pipeline, size measure.Size) (measure.Reading, error) {
	if _, err := measure.Paced(ctx, lightLoad, volumes[size].samples, l.commit); err != nil {
		return measure.Reading{}, err
	}
	whole, parts, err := l.latencies(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	values := measure.Percentiles(whole, 50, 99)
	for _, part := range parts {
		values = append(values, measure.Percentiles(part, 50, 99)...)
	}
	return measure.Sampled(len(whole), values...), nil
}

// underLoads returns the series of higher loads. A load is a part of the rate that the writers, the
// relays and the consumer reach together.
func underLoads(p *rig.Postgres) measure.Series {
	s := measure.Series{Title: "commit to visible under load"}
	for _, relays := range []int{1, 4} {
		suffix := map[int]string{1: "", 4: "_4_relays"}[relays]
		full := measure.Figure{Name: "visible.full_load" + suffix, Unit: "event/s", Note: "one event a transaction; all of it on one machine"}
		s.Measurements = append(s.Measurements, measure.Measurement{
			Figures: append([]measure.Figure{full}, measure.LoadFigures("visible", suffix)...), Run: through(p, relays, atLoads),
		})
		s.Derived = append(s.Derived, measure.HalfLoadTail("visible", suffix, "2 or less wanted"))
	}
	return s
}

func atLoads(ctx context.Context, l *pipeline, size measure.Size) (measure.Reading, error) {
	limit := volumes[size].flood
	start := time.Now()
	if err := measure.Flood(ctx, rig.Committers, limit, l.commit); err != nil {
		return measure.Reading{}, err
	}
	whole, err := l.whole(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	full := measure.PerSecond(len(whole), start)
	values, err := measure.UnderLoads(ctx, full, limit, l.commit, l.whole)
	return measure.Reading{Values: append([]float64{full}, values...)}, err
}
