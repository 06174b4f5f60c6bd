// Package outbox lists the series of the outbox. They compare it with the
// source document's loop and with the client and the database alone. Each run
// has its own database, copied from a template, and its own broker.
package outbox

import (
	"slices"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/outbox/claim"
	"example.com/lockstep/lab/bench/outbox/cost"
	"example.com/lockstep/lab/bench/outbox/latency"
	"example.com/lockstep/lab/bench/outbox/throughput"
	"example.com/lockstep/lab/bench/outbox/write"
	"example.com/lockstep/lab/bench/rig/postgres"
)

// Series returns the series, in the order in which they are taken.
func Series(p *postgres.Server) []measure.Series {
	return slices.Concat(throughput.Series(p), write.Series(p), latency.Series(p), claim.Series(p), cost.Series(p))
}
