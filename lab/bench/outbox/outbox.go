// Package outbox is the series of the outbox. It compares our relay with the
// plain loop, and with the client and the database alone. The plain loop is the
// outbox pattern as it is usually written: claim 200 rows, then publish one,
// wait for it and mark it, one after the other; its writers send NOTIFY in the
// transaction. Each run has its own database, copied from a template, and its
// own broker.
//
//	throughput.go   the rate at which a backlog leaves
//	write.go        transactions that write an event; wal.go: their bytes in the write-ahead log
//	latency.go      the time from a commit to the broker's acknowledgement; hot.go: of one aggregate
//	claim.go        the cost of a claim, in all states of the table
//	cost.go         a refused event's cost for others; idle.go: an idle relay
package outbox

import (
	"slices"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// Series returns the series, in the order in which they are taken.
func Series(p *rig.Postgres) []measure.Series {
	return slices.Concat(throughput(p), write(p), latency(p), claim(p), cost(p))
}
