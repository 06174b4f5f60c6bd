// Package outbox measures the outbox. It compares our relay with the plain loop, with the client
// alone, and with the database alone. The plain loop is the outbox pattern as it is usually
// written. It claims 200 rows. Then, for one row after the other, it publishes the row, waits for
// the answer and marks the row. The plain writers send NOTIFY in the transaction. Each run has its
// own database, which is a copy of a template, and its own broker.
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
