// Package reads is the series of reads with consistency tokens: what a token costs
// where the projection is fresh already, how soon a reader who waits has the answer
// after the apply, and what others notice of those who wait. The service is a process
// of its own, on a Postgres of its own, and its events are those of the bench.
package reads

import (
	"time"

	"example.com/lockstep/cmd/bench/measure"
)

// waitLoad is readers per second who wait, and events per second.
const waitLoad = 100

// volume is how much of it is done.
type volume struct {
	reads int           // of each kind
	waits int           // of readers who wait
	crowd time.Duration // of reads beside those who wait
}

var volumes = [...]volume{
	measure.Quick:  {100, 50, 200 * time.Millisecond},
	measure.Normal: {2_000, 800, 2 * time.Second},
	measure.Full:   {20_000, 5_000, 10 * time.Second},
}

// Series returns the series.
func Series() []measure.Series { return []measure.Series{costs(), wakes(), crowds()} }
