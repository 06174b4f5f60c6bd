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

// volumes has the amount of work of each size.
var volumes = [...]struct {
	aggregates, versions int           // of the waiting events
	limit                time.Duration // time that a peer has for the waiting events
	samples              int           // events of the measurement of latency
	killed               int           // events before and after a kill together
}{
	measure.Quick:  {100, 5, 300 * time.Millisecond, 50, 200},
	measure.Normal: {1000, 20, 1200 * time.Millisecond, 400, 4000},
	measure.Full:   {1000, 40, 10 * time.Second, 3000, 4000},
}

const (
	// quietTime is long enough for the broker to answer all messages that it has received.
	quietTime = 30 * time.Second
	// mostPaced is the highest rate at which single events are committed. This machine's Postgres
	// can commit at this rate next to a relay.
	mostPaced = 2000
	// pacedTime is the longest duration of a measurement of the latency.
	pacedTime = 2 * time.Second
	// warmUp is the number of events in a measurement for each event in the warm-up before it. In the warm-up
	// connections prepare their statements.
	warmUp = 5
	// recovery is the time that a peer has for half of the events before a kill, and for the rest after it.
	recovery = 100 * time.Second
)

// delays are the times that the broker takes to answer.
var delays = []time.Duration{0, rig.PublishLatency}

// Series returns the series.
func Series(p *rig.Postgres) (series []measure.Series) {
	for _, d := range delays {
		series = append(series, compared(p, d))
	}
	kill := measure.Series{Title: "peers: from a kill -9 of the relay amid a backlog to the last event", Long: true, Runs: 1}
	for _, e := range all {
		kill.Measurements = append(kill.Measurements, measure.Measurement{
			Figures: []measure.Figure{{Name: figure(e, "kill_to_last_s", 0), Unit: "s"}},
			Run:     func(ctx context.Context, size measure.Size) (measure.Reading, error) { return killed(ctx, p, e, size) },
		})
	}
	return append(series, kill)
}

// figure returns the name of a figure for a broker with the given delay.
func figure(e entry, what string, delay time.Duration) string {
	suffix := ""
	if delay > 0 {
		suffix = fmt.Sprintf("_%dms", delay.Milliseconds())
	}
	return "peers." + e.name + "_" + what + suffix
}

// compared returns a series of rates and latencies with a broker that has the given delay.
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

// bestRatios returns ratios that compare our outbox with the best peer that keeps the order. rates,
// p99s and ourP99s are the names of figures, one for each such peer.
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

// drain measures the rate at which a backlog leaves, from its first event to its last.
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

// paceAt measures the time from a commit to its publish, with one event in each transaction. It
// also measures the bytes of the write-ahead log.
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
		return r.Commit(ctx, f.db, event, func() { c.note(event.AggregateID) })
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

// killed kills a relay when the broker has answered for a little more than half of the events, and
// starts another relay. At the end it counts the events that the broker has received.
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
	// At this number a relay that claims thousands of events is in the middle of a claim, and so is one
	// that claims tens.
	if err := f.killAt(ctx, events/2+events/40); err != nil {
		return measure.Reading{}, err
	}
	f.broker.resume()
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
	note := fmt.Sprintf("of %d events %d were left at the kill; %d lost, %s", events, left, lost, counts)
	return measure.Reading{Values: []float64{counts.last.Sub(start).Seconds()}, Note: note}, nil
}

func (f *fixture) child(ctx context.Context) (*rig.Process, error) {
	return rig.StartProcess(ctx, nil, Command, f.name, f.database.Service, f.broker.addr)
}

// killAt starts a relay in its own process. The broker answers for the given number of events and
// for no more. Then killAt kills the relay, so that no relay is done before the kill, however fast
// it is.
func (f *fixture) killAt(ctx context.Context, events int) error {
	still := f.broker.answerUntil(events)
	child, err := f.child(ctx)
	if err != nil {
		return err
	}
	select {
	case <-still:
		return child.Kill()
	case <-time.After(recovery):
		return errors.Join(fmt.Errorf("%s published %d of %d events in %s", f.name, f.broker.counts().answered, events, recovery), child.Close())
	case <-ctx.Done():
		return errors.Join(ctx.Err(), child.Close())
	}
}
