package live

import (
	"maps"
	"math"
	"slices"
	"time"
)

// window is how many frame times a rate covers. They last two seconds.
const window = 8

// Counter follows a counter of a process. If the process restarts, the process's counter begins
// again at 0, but the total of Counter goes on. The zero value is ready. Only one goroutine may use
// it.
type Counter struct {
	last, total float64
	past        []past // oldest first
}

type past struct {
	at    time.Time
	total float64
}

// See takes the value of the process's counter at that time.
func (c *Counter) See(at time.Time, value float64) {
	if value < c.last {
		c.last = 0
	}
	c.total += value - c.last
	c.last = value
	c.Hold(at)
}

// Hold adds an observation without a new value. The caller uses it while the process is away.
func (c *Counter) Hold(at time.Time) {
	c.past = append(c.past, past{at, c.total})
	if len(c.past) > window+1 {
		c.past = c.past[1:]
	}
}

// Total returns the growth since the first process began.
func (c *Counter) Total() int64 { return int64(c.total) }

// Rate returns the growth per second over the last two seconds.
func (c *Counter) Rate() float64 {
	if len(c.past) < 2 {
		return 0
	}
	first, last := c.past[0], c.past[len(c.past)-1]
	return (last.total - first.total) / max(last.at.Sub(first.at).Seconds(), FrameTime.Seconds())
}

// quantile returns a quantile of the values that a histogram got between two scrapes, in the unit
// of the histogram. It is negative if the histogram got no value. quantile assumes that the values
// of a bucket are spread evenly over the bucket.
func quantile(q float64, before, now map[float64]float64) float64 {
	bounds := slices.Sorted(maps.Keys(now))
	if len(bounds) == 0 {
		return -1
	}
	grown := func(bound float64) float64 {
		if now[bound] < before[bound] { // the process has restarted
			return now[bound]
		}
		return now[bound] - before[bound]
	}
	all := grown(bounds[len(bounds)-1])
	if all <= 0 {
		return -1
	}
	lower, below := 0.0, 0.0
	for _, bound := range bounds {
		n := grown(bound)
		if n >= q*all {
			if math.IsInf(bound, 1) {
				return lower
			}
			return lower + (bound-lower)*(q*all-below)/max(n-below, 1)
		}
		lower, below = bound, n
	}
	return lower
}
