// Package telemetry is the series of what traces and metrics cost the pair: one unit of work is
// a video that is created at video over REST, and then read at catalog with its token. So it
// takes the write, the outbox, the relay, the consumer and a reader's wait.
//
// Three pairs take turns, each of two processes with a database and a broker of its own. "on"
// sends all traces and its metrics to a collector, which counts them. "off" has no endpoint, as a
// service is without OTEL_*. "none" has OpenTelemetry's no-op providers in place of the SDK: the
// calls of the instrumentation remain. All write their log lines, and drop them.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// clients are enough to keep two cores busy.
const clients = 16

// turns is the number of turns of each pair in a run. Short turns next to each other in time
// see the same machine.
const turns = 12

// volumes are the total times of each pair.
var volumes = [...]time.Duration{measure.Quick: 600 * time.Millisecond, measure.Normal: 6 * time.Second, measure.Full: 18 * time.Second}

// Series returns the series.
func Series(p *rig.Postgres) []measure.Series {
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (measure.Reading, error) {
		return inTurns(ctx, p, volumes[size]/turns)
	}}
	for _, mode := range modes {
		m.Figures = append(m.Figures,
			measure.Figure{Name: rate(mode), Unit: "video/s", Note: notes[mode]},
			measure.Figure{Name: cost(mode), Unit: "us", Note: "CPU time of both services for a video"})
	}
	return []measure.Series{{
		Title: fmt.Sprintf("telemetry: videos created, and read with their tokens, by %d clients", clients),
		// The ratios of a busy machine differ by a tenth from one turn to the next.
		Runs: 5, Measurements: []measure.Measurement{m},
		Derived: []measure.Derived{
			measure.Ratio("telemetry.on_vs_off", rate(on), rate(off), "0.9 or more wanted"),
			measure.Ratio("telemetry.off_vs_none", rate(off), rate(none), "0.99 or more wanted"),
			measure.Ratio("telemetry.on_vs_off_cpu", cost(on), cost(off), ""),
			measure.Ratio("telemetry.off_vs_none_cpu", cost(off), cost(none), ""),
		},
	}}
}

var notes = map[string]string{
	on:   "all requests are traced; the collector runs on the same cores",
	off:  "no endpoint: metrics are counted, and no span is recorded",
	none: "OpenTelemetry's no-op providers",
}

func rate(mode string) string { return "telemetry." + mode }
func cost(mode string) string { return "telemetry." + mode + "_cpu_us" }

// inTurns returns the rate and the cost of each pair.
func inTurns(ctx context.Context, p *rig.Postgres, turn time.Duration) (_ measure.Reading, err error) {
	received, err := startCollector()
	if err != nil {
		return measure.Reading{}, err
	}
	defer received.server.Stop()
	pairs := make([]*pair, len(modes))
	defer func() {
		for _, one := range pairs {
			if one != nil {
				err = errors.Join(err, one.Close())
			}
		}
	}()
	for i, mode := range modes {
		if pairs[i], err = startPair(ctx, p, mode, received.endpoint); err != nil {
			return measure.Reading{}, fmt.Errorf("%s: %w", mode, err)
		}
	}
	totals := make([]work, len(modes))
	for n := range turns + 1 {
		for i := range pairs {
			i = (i + n) % len(pairs) // a turn is faster or slower for the one before it
			done, err := pairs[i].during(ctx, turn)
			if err != nil {
				return measure.Reading{}, fmt.Errorf("%s: %w", modes[i], err)
			}
			if n > 0 { // in the first turn, connections and statements are prepared
				totals[i].add(done)
			}
		}
	}
	var values []float64
	for _, t := range totals {
		values = append(values, float64(t.videos)/t.took.Seconds(), float64(t.cpu.Microseconds())/float64(t.videos))
	}
	spans, points := received.spans.Load(), received.points.Load()
	if spans == 0 || points == 0 {
		return measure.Reading{}, fmt.Errorf("the collector has got %d spans and %d points", spans, points)
	}
	return measure.Reading{Values: values, Note: fmt.Sprintf("%d spans reached the collector", spans)}, nil
}

// work is what a pair has done.
type work struct {
	videos    int64
	took, cpu time.Duration
}

func (w *work) add(more work) {
	w.videos, w.took, w.cpu = w.videos+more.videos, w.took+more.took, w.cpu+more.cpu
}

// during lets clients create and read videos within limit.
func (p *pair) during(ctx context.Context, limit time.Duration) (work, error) {
	var videos atomic.Int64
	start, before := time.Now(), rig.CPU(p.video.PID, p.catalog.PID)
	err := measure.Flood(ctx, clients, limit, func(ctx context.Context, _ int) error {
		videos.Add(1)
		return p.walk(ctx)
	})
	return work{videos.Load(), time.Since(start), rig.CPU(p.video.PID, p.catalog.PID) - before}, err
}
