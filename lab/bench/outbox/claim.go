package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// A claimVolume is the amount of work of each size.
type claimVolume struct {
	claims int     // timed claims in each state of the table
	scale  float64 // part of the rows that a state has in a run of full size
}

var claimVolumes = [...]claimVolume{measure.Quick: {3, 0.01}, measure.Normal: {7, 1}, measure.Full: {30, 1}}

// claim returns the series of the cost of a claim of new events. It compares tables in all states
// that an outbox gets into with an empty table. It also measures the rate at which a backlog leaves
// a table that vacuum cannot clean.
func claim(p *rig.Postgres) []measure.Series {
	k := &states{server: p, kept: map[string]*rig.Database{}}
	in := func(title string, from measure.Size, suffix string, states ...state) measure.Series {
		s := measure.Series{Title: "outbox: the cost of a claim of 100 new events" + title, From: from}
		s.Measurements = []measure.Measurement{k.claiming(suffix, states)}
		for _, st := range states[1:] {
			s.Derived = append(s.Derived, measure.Ratio("claim.at_"+st.name, claimFigure(st, suffix), claimFigure(states[0], suffix), st.wanted))
		}
		return s
	}
	return []measure.Series{
		in("", measure.Quick, "", emptyOutbox, heldOutbox, parkedOutbox, pendingOutbox, publishedOutbox),
		in(" next to 10,000,000 published rows", measure.Full, "_then", emptyOutbox, hugeOutbox),
		{
			Title:        "outbox: 20,000 events leave, after 200,000 rows were published under a transaction that is still open",
			Measurements: []measure.Measurement{k.draining("relay.drain_empty", emptyOutbox), k.draining("relay.drain_held", heldOutbox)},
			Derived:      []measure.Derived{measure.Ratio("relay.drain_held_vs_empty", "relay.drain_held", "relay.drain_empty", "")},
		},
	}
}

func claimFigure(s state, suffix string) string { return "claim." + s.name + suffix + "_ms" }

// claiming returns a measurement of all states in one run. In each turn, each state has one claim
// and one page of a scan. The figures are the median time of the claims and the median time of the
// pages. A page has 2,000 rows, pending or not.
func (k *states) claiming(suffix string, states []state) measure.Measurement {
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (measure.Reading, error) {
		v := claimVolumes[size]
		took, pages := make([][]time.Duration, len(states)), make([][]time.Duration, len(states))
		for turn := range v.claims {
			for i, s := range states {
				d, err := k.keep(ctx, s, v.scale)
				if err != nil {
					return measure.Reading{}, err
				}
				claim, page, err := claimOnce(ctx, d)
				if err != nil {
					return measure.Reading{}, fmt.Errorf("%s: %w", s.name, err)
				}
				if turn > 0 || v.claims == 1 { // the first one meets cold caches
					took[i], pages[i] = append(took[i], claim), append(pages[i], page)
				}
			}
		}
		return measure.Reading{Values: medians(took, pages)}, nil
	}}
	for _, s := range states {
		m.Figures = append(m.Figures,
			measure.Figure{Name: claimFigure(s, suffix), Unit: "ms", Note: s.note},
			measure.Figure{Name: "claim.page_" + s.name + suffix + "_ms", Unit: "ms", Note: "a page of a scan: 2,000 rows or all there are"})
	}
	return m
}

// medians returns two values for each state: the median of its claims and the median of its pages.
func medians(took, pages [][]time.Duration) (values []float64) {
	for i := range took {
		values = slices.Concat(values, measure.Percentiles(took[i], 50), measure.Percentiles(pages[i], 50))
	}
	return values
}
