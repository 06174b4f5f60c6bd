// Package telemetry measures what traces and metrics cost the pair. One unit of work creates a
// video over REST at video, and then reads it at catalog with its token. So a unit includes the
// write, the outbox, the relay, the consumer and the wait of a reader.
//
// Three pairs take turns. Each pair has two processes, and its own database and broker. The pair
// "on" sends all traces and its metrics to a collector, which counts them. The pair "off" has no
// endpoint, like a service without OTEL_*. The pair "none" has OpenTelemetry's no-op providers in
// place of the SDK, so only the calls of the instrumentation remain. The two histograms of
// telemetry.Durations are kept in all pairs, at 30 ns a measurement. All pairs write their log lines,
// and the lines are dropped.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// clients is the number of clients. They are enough to keep two cores busy.
const clients = 16

// volume is the amount of work in a run. Turns that are next to each other in time meet the same state
// of the machine, but its speed differs from one second to the next. The ratio of two equal pairs
// differs by 0.13 from one turn of 150 ms to the next, and by 0.105 from one turn of 500 ms to the next.
// So in the same time, short turns give the better mean. The mean of 216 turns has a standard error of
// 0.009. In addition, two equal pairs differ by one or two percent.
type volume struct {
	turns int           // number of turns of each mode
	turn  time.Duration // length of a turn
}

var volumes = [...]volume{
	measure.Quick: {36, 17 * time.Millisecond}, measure.Normal: {9, 170 * time.Millisecond}, measure.Full: {216, 150 * time.Millisecond},
}

// Series returns the series.
func Series(p *rig.Postgres) []measure.Series {
	first := rand.IntN(len(modes)) // the first to start in the next run
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (measure.Reading, error) {
		first++
		return inTurns(ctx, p, first, volumes[size])
	}}
	for _, mode := range modes {
		m.Figures = append(m.Figures,
			measure.Figure{Name: rate(mode), Unit: "video/s", Note: notes[mode]},
			measure.Figure{Name: cost(mode), Unit: "us", Note: "CPU time of both services for a video"})
	}
	return []measure.Series{{
		Title:        fmt.Sprintf("telemetry: videos created, and read with their tokens, by %d clients", clients),
		Measurements: []measure.Measurement{m},
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
	none: "OpenTelemetry's no-op providers; the two histograms of telemetry.Durations are kept",
}

func rate(mode string) string { return "telemetry." + mode }
func cost(mode string) string { return "telemetry." + mode + "_cpu_us" }

// inTurns returns the rate and the cost of each mode. The last pair to start is faster than the others
// by one or two percent, so each run starts with another mode. In five runs, two of the three modes
// are the last one twice.
func inTurns(ctx context.Context, p *rig.Postgres, first int, v volume) (_ measure.Reading, err error) {
	received, err := startCollector()
	if err != nil {
		return measure.Reading{}, err
	}
	defer received.server.Stop()
	pairs := make([]*pair, len(modes))
	stop := func() error {
		var closing errgroup.Group // each process lingers for two seconds
		for i, one := range pairs {
			if one != nil {
				closing.Go(one.Close)
			}
			pairs[i] = nil
		}
		return closing.Wait()
	}
	defer func() { err = errors.Join(err, stop()) }()
	for n := range modes {
		i := (first + n) % len(modes)
		one, err := startPair(ctx, p, modes[i], received.endpoint)
		if err != nil {
			return measure.Reading{}, fmt.Errorf("%s: %w", modes[i], err)
		}
		pairs[i] = one
	}
	var values []float64
	totals, err := work(ctx, pairs, v)
	for _, t := range totals {
		values = append(values, float64(t.videos)/t.took.Seconds(), float64(t.cpu.Microseconds())/float64(t.videos))
	}
	err = errors.Join(err, stop()) // a process sends its last metrics when it ends
	spans := received.spans.Load()
	if err == nil && (spans == 0 || received.metrics.Load() == 0) {
		err = errors.New("no spans or no metrics have reached the collector")
	}
	return measure.Reading{Values: values, Note: fmt.Sprintf("%d spans reached the collector", spans)}, err
}

// work makes the pairs work in turns. It returns the work that each pair has done.
func work(ctx context.Context, pairs []*pair, v volume) ([]done, error) {
	totals := make([]done, len(pairs))
	for n := range v.turns + 1 {
		for i := range pairs {
			if n%2 == 1 {
				i = (len(pairs) - i) % len(pairs) // so each pair follows every other pair equally often
			}
			more, err := pairs[i].during(ctx, v.turn)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", modes[i], err)
			}
			if n > 0 { // in the first turn, connections and statements are prepared
				totals[i].add(more)
			}
		}
	}
	return totals, nil
}

// done is the work that a pair has done.
type done struct {
	videos    int64
	took, cpu time.Duration
}

func (d *done) add(more done) {
	d.videos, d.took, d.cpu = d.videos+more.videos, d.took+more.took, d.cpu+more.cpu
}

// during makes clients create and read videos for the duration limit.
func (p *pair) during(ctx context.Context, limit time.Duration) (done, error) {
	var videos atomic.Int64
	start, before := time.Now(), rig.CPU(p.video.PID, p.catalog.PID)
	err := measure.Flood(ctx, clients, limit, func(ctx context.Context, _ int) error {
		videos.Add(1)
		return p.walk(ctx)
	})
	return done{videos.Load(), time.Since(start), rig.CPU(p.video.PID, p.catalog.PID) - before}, err
}
