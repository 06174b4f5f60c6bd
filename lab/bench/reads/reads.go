// Package reads is the series of reads with consistency tokens: the cost of a
// token if the projection is fresh already, the time from the apply to the
// answer of a waiting reader, and the effect of waiting readers on others. Two
// instances of catalog share a Postgres of their own: one is in this process,
// the other is a separate process. The bench produces their events.
package reads

import (
	"time"

	"example.com/lockstep/lab/bench/measure"
)

// waitLoad is the number of waiting readers per second, and of events per
// second.
const waitLoad = 100

// volume is the amount of work of each size.
type volume struct {
	reads int           // of each kind
	waits int           // of waiting readers
	limit time.Duration // duration of reads next to waiting readers
}

var volumes = [...]volume{
	measure.Quick:  {100, 50, 200 * time.Millisecond},
	measure.Normal: {2_000, 800, 2 * time.Second},
	measure.Full:   {20_000, 5_000, 10 * time.Second},
}

// Series returns the series.
func Series() []measure.Series { return []measure.Series{costs(), wakes(), waitingSeries()} }
