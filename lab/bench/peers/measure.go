package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// volumes are the waiting events, the time that a peer gets for them, and the events whose
// latency is measured.
var volumes = [...]struct {
	aggregates, versions int
	limit                time.Duration
	samples, killed      int
}{
	measure.Quick:  {100, 5, 300 * time.Millisecond, 50, 200},
	measure.Normal: {1000, 20, 4 * time.Second, 1000, 4000},
	measure.Full:   {1000, 40, 10 * time.Second, 3000, 10_000},
}

const (
	// quietTime is long enough for the broker to answer what it has got.
	quietTime = 30 * time.Second
	// mostPaced bounds the rate at which single events are committed: what this machine's
	// Postgres commits next to a relay.
	mostPaced = 2000
	// pacedTime is how long the latency is measured at most. warmUp is a part of that before
	// it, in which connections prepare their statements.
	pacedTime = 5 * time.Second
	warmUp    = 5
	// recovery is how long a peer gets after a kill.
	recovery = 100 * time.Second
)

// delays are how long the broker takes to answer.
var delays = []time.Duration{0, rig.PublishLatency}

// Series returns the series.
func Series(p *rig.Postgres) (series []measure.Series) {
	for _, d := range delays {
		series = append(series, compared(p, d))
	}
	kill := measure.Series{Title: "peers: from a kill -9 of the relay amid a backlog to the last event", Runs: 1}
	for _, e := range all {
		kill.Measurements = append(kill.Measurements, measure.Measurement{
			Figures: []measure.Figure{{Name: figure(e, "kill_to_last_s", 0), Unit: "s"}},
			Run:     func(ctx context.Context, size measure.Size) (measure.Reading, error) { return killed(ctx, p, e, size) },
		})
	}
	return append(series, kill)
}

// figure is a figure's name at a broker with that delay.
func figure(e entry, what string, delay time.Duration) string {
	suffix := ""
	if delay > 0 {
		suffix = fmt.Sprintf("_%dms", delay.Milliseconds())
	}
	return "peers." + e.name + "_" + what + suffix
}

// compared compares rates and latencies at a broker with this delay.
func compared(p *rig.Postgres, delay time.Duration) measure.Series {
	s := measure.Series{Title: fmt.Sprintf("peers: a broker that takes %s", delay)}
	own, _ := find(ours)
	var rates, p99s, ourP99s []string
	for _, e := range all {
		f := func(what, unit, note string) measure.Figure {
			return measure.Figure{Name: figure(e, what, delay), Unit: unit, Note: note}
		}
		m := measure.Measurement{
			Figures: []measure.Figure{
				f("events", "event/s", e.title+": "+e.remark),
				f("statements_per_event", "", "of the relay, while a backlog leaves"),
				f("wal_bytes_per_event", "B", "one event a transaction, from its commit to its mark"),
				f("p50_ms", "ms", "commit to publish, at half of its rate"), f("p99_ms", "ms", ""),
			},
			Run: func(ctx context.Context, size measure.Size) (measure.Reading, error) {
				return relayed(ctx, p, e, delay, size)
			},
		}
		if e.ordered && e.name != ours {
			m.Figures = append(m.Figures, f("p99_ms_lockstep", "ms", "ours, at half of the peer's rate"))
			rates, p99s, ourP99s = append(rates, figure(e, "events", delay)), append(p99s, figure(e, "p99_ms", delay)),
				append(ourP99s, figure(e, "p99_ms_lockstep", delay))
		}
		s.Measurements = append(s.Measurements, m)
	}
	s.Derived = bestRatios(delay, figure(own, "events", delay), rates, p99s, ourP99s)
	return s
}

// bestRatios compare us with the best peer that keeps the order. rates, p99s and ourP99s are the
// figures of these peers.
func bestRatios(delay time.Duration, ourRate string, rates, p99s, ourP99s []string) []measure.Derived {
	n := len(rates)
	ratio := func(what, note string, from []string, compute func([]float64) float64) measure.Derived {
		f := measure.Figure{Name: figure(entry{name: "best"}, what, delay), Unit: "x", Note: note}
		return measure.Derived{Figure: f, From: from, Compute: compute}
	}
	return []measure.Derived{
		ratio("throughput_ratio", "to the best peer that keeps the order; 1.5 or more wanted", append([]string{ourRate}, rates...),
			func(in []float64) float64 { return in[0] / slices.Max(in[1:]) }),
		ratio("p99_ratio", "that peer's p99 divided by ours at half of its rate; 1.5 or more wanted", slices.Concat(rates, p99s, ourP99s),
			func(in []float64) float64 {
				best := slices.Index(in[:n], slices.Max(in[:n]))
				return in[n+best] / in[2*n+best]
			}),
	}
}

// relayed measures one peer.
func relayed(ctx context.Context, p *rig.Postgres, e entry, delay time.Duration, size measure.Size) (_ measure.Reading, err error) {
	f, err := open(ctx, p, e, delay)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, f.Close(ctx)) }()
	rate, statements, counts, err := f.drain(ctx, size)
	if err != nil {
		return measure.Reading{}, err
	}
	if e.ordered && counts.late > 0 {
		return measure.Reading{}, fmt.Errorf("%s: %s", e.name, counts)
	}
	paced := min(rate/2, mostPaced)
	took, wal, err := paceAt(ctx, p, e, delay, paced, size)
	if err != nil {
		return measure.Reading{}, err
	}
	values := append([]float64{rate, statements, wal}, measure.Percentiles(took, 50, 99)...)
	if e.ordered && e.name != ours {
		own, _ := find(ours)
		if took, _, err = paceAt(ctx, p, own, delay, paced, size); err != nil {
			return measure.Reading{}, err
		}
		values = append(values, measure.Percentiles(took, 99)...)
	}
	return measure.Reading{Values: values, Note: fmt.Sprintf("%s; latency at %.0f event/s", counts, paced)}, nil
}

// drain measures the rate at which a backlog leaves, between its first event and its last.
func (f *fixture) drain(ctx context.Context, size measure.Size) (rate, statements float64, _ brokerCounts, err error) {
	v := volumes[size]
	if err := f.fill(ctx, v.aggregates, v.versions); err != nil {
		return 0, 0, brokerCounts{}, err
	}
	r, err := f.start(ctx)
	if err != nil {
		return 0, 0, brokerCounts{}, err
	}
	start := time.Now()
	counts, err := f.broker.await(ctx, v.limit)
	sent := float64(r.statements.Load())
	err = errors.Join(err, r.Close())
	if err == nil && counts.answered < 2 {
		err = fmt.Errorf("%s published %d events", f.name, counts.answered)
	}
	return float64(counts.answered) / counts.last.Sub(start).Seconds(), sent / float64(counts.answered), counts, err
}

// paceAt measures the time from commit to publish, one event a transaction, and the bytes of
// the write-ahead log.
func paceAt(
	ctx context.Context, p *rig.Postgres, e entry, delay time.Duration, rate float64, size measure.Size,
) (took []time.Duration, walBytes float64, err error) {
	f, err := open(ctx, p, e, delay)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close(ctx)) }()
	n := int(min(float64(volumes[size].samples), rate*pacedTime.Seconds()))
	r, err := f.start(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := f.pace(ctx, r, rate, n/warmUp); err != nil {
		return nil, 0, err
	}
	var from string
	if err := f.db.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&from); err != nil {
		return nil, 0, err
	}
	if took, err = f.pace(ctx, r, rate, n); err != nil {
		return nil, 0, err
	}
	err = f.db.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::float8`, from).Scan(&walBytes)
	return took, walBytes / float64(n), err
}

// pace commits n events, and returns the time from each commit to the broker's answer.
func (f *fixture) pace(ctx context.Context, r *running, rate float64, n int) ([]time.Duration, error) {
	f.broker.expect(n)
	c := commits{at: map[string]time.Time{}}
	_, err := measure.Paced(ctx, rate, n, func(ctx context.Context, _ int) error {
		event := version(uuid.Must(uuid.NewV7()), 1)
		if err := f.commit(ctx, event); err != nil {
			return err
		}
		c.note(event.AggregateID)
		r.Wake()
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := f.broker.await(ctx, quietTime); err != nil {
		return nil, err
	}
	took, err := c.took(f.broker)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return took, nil
}

// killed kills a relay when a half of the events is published, starts another, and counts
// what the broker has got in the end.
func killed(ctx context.Context, p *rig.Postgres, e entry, size measure.Size) (_ measure.Reading, err error) {
	const versions = 20
	f, err := open(ctx, p, e, rig.PublishLatency)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, f.Close(ctx)) }()
	events := volumes[size].killed
	if err := f.fill(ctx, events/versions, versions); err != nil {
		return measure.Reading{}, err
	}
	if err := f.killAt(ctx, events/2); err != nil {
		return measure.Reading{}, err
	}
	left := events - f.broker.counts().answered
	start := time.Now()
	child, err := f.child(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	counts, err := f.broker.await(ctx, recovery)
	if err != nil {
		return measure.Reading{}, err
	}
	lost := events - counts.answered
	if e.ordered && (lost > 0 || counts.late > 0) {
		return measure.Reading{}, fmt.Errorf("%s: %d lost, %s", e.name, lost, counts)
	}
	last := max(counts.last.Sub(start).Seconds(), 0.001) // the kill may have come too late
	note := fmt.Sprintf("of %d events %d were left at the kill; %d lost, %s", events, left, lost, counts)
	return measure.Reading{Values: []float64{last}, Note: note}, nil
}

func (f *fixture) child(ctx context.Context) (*rig.Process, error) {
	return rig.StartProcess(ctx, nil, Command, f.name, f.database.Service, f.broker.addr)
}

// killAt starts a relay in its own process, and kills it when the broker has answered for so
// many events.
func (f *fixture) killAt(ctx context.Context, events int) error {
	child, err := f.child(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	for f.broker.counts().answered < events {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), child.Close())
		}
	}
	return child.Kill()
}
