// Package cost is the series of the cost of an idle relay, and of the cost of a
// refused event for the other events.
package cost

import (
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig/postgres"
)

// volume is the amount of work of each size.
type volume struct {
	idle    time.Duration // of an idle relay
	refused int           // events next to a refused one
}

var volumes = [...]volume{
	measure.Quick:  {time.Second, 1_000},
	measure.Normal: {20 * time.Second, 10_000},
	measure.Full:   {time.Minute, 10_000},
}

// Series returns the series.
func Series(p *postgres.Server) []measure.Series {
	return []measure.Series{
		{Title: "outbox: a relay with nothing to do", Runs: 1, Measurements: []measure.Measurement{idling(p)}},
		{
			Title:        "outbox: 10,000 events leave, one of which is refused; a publish takes 5 ms",
			Measurements: []measure.Measurement{besideRefused(p, "relay.none_refused_ms", false), besideRefused(p, "relay.one_refused_ms", true)},
			Derived: []measure.Derived{measure.Ratio("relay.one_refused_vs_none", "relay.one_refused_ms", "relay.none_refused_ms",
				"until all other aggregates are done; 1.2 or less wanted")},
		},
	}
}
