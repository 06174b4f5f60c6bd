package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/outbox/backlog"
	"example.com/lockstep/cmd/bench/rig/postgres"
	"example.com/lockstep/cmd/bench/rig/relay"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// claimVolume is how much of it is done.
type claimVolume struct {
	claims int     // timed in each state of the table
	scale  float64 // of the states
}

var claimVolumes = [...]claimVolume{measure.Quick: {3, 0.01}, measure.Normal: {15, 1}, measure.Full: {30, 1}}

// claimed is how many events a timed claim finds, one of each of as many
// aggregates.
const claimed = 100

// outboxClaims returns the series.
func outboxClaims(p *postgres.Server) []measure.Series {
	k := &states{server: p, kept: map[string]*postgres.Database{}}
	in := func(title string, from measure.Size, suffix string, states ...state) measure.Series {
		s := measure.Series{Title: "outbox: what a claim of 100 new events costs" + title, From: from}
		s.Measurements = []measure.Measurement{k.claiming(suffix, states)}
		for _, st := range states[1:] {
			s.Derived = append(s.Derived, measure.Ratio("claim.at_"+st.name, claimFigure(st, suffix), claimFigure(states[0], suffix), st.wanted))
		}
		return s
	}
	return []measure.Series{
		in("", measure.Quick, "", emptyOutbox, heldOutbox, parkedOutbox, pendingOutbox, publishedOutbox),
		in(" beside 10,000,000 published rows", measure.Full, "_then", emptyOutbox, hugeOutbox),
		{
			Title:        "outbox: 20,000 events leave, after 200,000 rows were published under a transaction that is still open",
			Measurements: []measure.Measurement{k.draining("relay.drain_empty", emptyOutbox), k.draining("relay.drain_held", heldOutbox)},
			Derived:      []measure.Derived{measure.Ratio("relay.drain_held_vs_empty", "relay.drain_held", "relay.drain_empty", "")},
		},
	}
}

func claimFigure(s state, suffix string) string { return "claim." + s.name + suffix + "_ms" }

// claimMedians are those of each state's claims and walks, in turns.
func claimMedians(took, walks [][]time.Duration) (values []float64) {
	for i := range took {
		values = slices.Concat(values, measure.Percentiles(took[i], 50), measure.Percentiles(walks[i], 50))
	}
	return values
}

// claiming measures all states in one run, in turns of one claim each: the median
// of the claims, and how long a walk over the first 1,000 aggregates takes, which
// a relay does every few seconds.
func (k *states) claiming(suffix string, states []state) measure.Measurement {
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (measure.Reading, error) {
		v := claimVolumes[size]
		took, walks := make([][]time.Duration, len(states)), make([][]time.Duration, len(states))
		for turn := range v.claims {
			for i, s := range states {
				d, err := k.keep(ctx, s, v.scale)
				if err != nil {
					return measure.Reading{}, err
				}
				claim, walk, err := claimOnce(ctx, d)
				if err != nil {
					return measure.Reading{}, fmt.Errorf("%s: %w", s.name, err)
				}
				if turn > 0 || v.claims == 1 { // the first one meets cold caches
					took[i], walks[i] = append(took[i], claim), append(walks[i], walk)
				}
			}
		}
		return measure.Reading{Values: claimMedians(took, walks)}, nil
	}}
	for _, s := range states {
		m.Figures = append(m.Figures,
			measure.Figure{Name: claimFigure(s, suffix), Unit: "ms", Note: s.note},
			measure.Figure{Name: "claim.walk_" + s.name + suffix + "_ms", Unit: "ms", Note: "a walk over 1,000 aggregates or all there are"})
	}
	return m
}

// claimLimits are a relay's.
var claimLimits = queue.Limits{Aggregates: 500, Events: 2000, PerAggregate: 100, Bytes: 8 << 20}

// claimOnce appends events, claims them, marks them as published, and walks.
func claimOnce(ctx context.Context, d *postgres.Database) (claim, walk time.Duration, err error) {
	db, err := d.Pool(ctx, 1)
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	q, token := queue.New(db), uuid.NewString()
	var seen string
	if err := db.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&seen); err != nil {
		return 0, 0, err
	}
	// The first one has the connection learn about the statements.
	for range 2 {
		if err := appendNew(ctx, db, claimed); err != nil {
			return 0, 0, err
		}
		start := time.Now()
		c, err := q.Fresh(ctx, token, claimLimits, queue.Snapshot(seen), nil)
		claim = time.Since(start)
		if err == nil && len(c.Runs) != claimed {
			err = fmt.Errorf("%d events claimed, want %d", len(c.Runs), claimed)
		}
		if err != nil {
			return 0, 0, err
		}
		seen = string(c.Seen)
		var done []queue.Outcome
		for _, run := range c.Runs {
			done = append(done, queue.Outcome{Run: run, Published: len(run)})
		}
		if _, err := q.Settle(ctx, token, done); err != nil {
			return 0, 0, err
		}
	}
	start := time.Now()
	w, err := q.Walk(ctx, token, claimLimits, queue.Position{}, 1000)
	walk = time.Since(start)
	if err != nil {
		return 0, 0, err
	}
	var back []queue.Outcome
	for _, run := range w.Runs {
		back = append(back, queue.Outcome{Run: run})
	}
	_, err = q.Settle(ctx, token, back)
	return claim, walk, err
}

// appendNew commits an event of each of n new aggregates.
func appendNew(ctx context.Context, db *pgxpool.Pool, n int) error {
	events := make([]eventing.Event, n)
	for i := range events {
		events[i] = relay.VideoCreated(uuid.Must(uuid.NewV7()), time.Now().UTC())
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, nil, events...) })
}

// drainedEvents are those of draining, of which each aggregate has two.
const drainedEvents = 20_000

// draining measures how fast a backlog leaves in a state.
func (k *states) draining(name string, s state) measure.Measurement {
	return measure.Measurement{
		Figures: []measure.Figure{{Name: name, Unit: "event/s", Note: s.note + "; a publish costs nothing"}},
		Run: measure.Single(claimVolumes, func(ctx context.Context, v claimVolume) (float64, error) {
			d, err := k.keep(ctx, s, v.scale)
			if err != nil {
				return 0, err
			}
			n := scaled(drainedEvents, v.scale)
			since, err := appendBacklog(ctx, d, backlog.Backlog{Aggregates: n / 2, Versions: 2})
			if err != nil {
				return 0, err
			}
			return relay.Through(ctx, relay.Instant, func(ctx context.Context, o *relay.Outlet) (float64, error) {
				return relay.Drain(ctx, d, o, 1, n, since)
			})
		}),
	}
}
