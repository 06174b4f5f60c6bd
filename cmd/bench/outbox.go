package main

import (
	"slices"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/outbox/claim"
	"example.com/lockstep/cmd/bench/outbox/latency"
	"example.com/lockstep/cmd/bench/outbox/throughput"
	"example.com/lockstep/cmd/bench/outbox/write"
	"example.com/lockstep/cmd/bench/rig/postgres"
	"example.com/lockstep/cmd/bench/outbox/cost"
)

// outboxSeries returns the series.
func outboxSeries(p *postgres.Server) []measure.Series {
	return slices.Concat(throughput.Series(p), write.Series(p), latency.Series(p), claim.Series(p), cost.Series(p))
}
