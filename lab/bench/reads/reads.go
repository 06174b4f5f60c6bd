// Package reads measures reads with consistency tokens. It measures the cost of a token if the
// projection is already fresh, the time from the commit of an event to the answer of a waiting
// reader, and the effect of waiting readers on other readers. Two instances of catalog share a
// Postgres of their own. One instance is in this process, the other is in a separate process. The
// bench produces their events.
package reads

import (
	"time"

	"example.com/lockstep/lab/bench/measure"
)

// waitLoad is the number of readers that begin to wait per second, and the number of events per
// second.
const waitLoad = 100

// volume is the amount of work of each size.
type volume struct {
	reads int           // of each kind
	waits int           // reads that wait for an event
	limit time.Duration // duration of reads next to waiting readers
}

var volumes = [...]volume{
	measure.Quick:  {100, 50, 200 * time.Millisecond},
	measure.Normal: {700, 200, 600 * time.Millisecond},
	measure.Full:   {20_000, 5_000, 10 * time.Second},
}

// Series returns the series.
func Series() []measure.Series { return []measure.Series{costs(), wakes(), waitingSeries()} }
