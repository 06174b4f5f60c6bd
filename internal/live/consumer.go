package live

import (
	"time"
)

// FrameTime is the time from one frame to the next. It is also the time from one reading of the
// metrics to the next.
const FrameTime = 250 * time.Millisecond

// Consumer computes catalog's part of a frame from the metrics of its process. The zero value is
// ready. Only one goroutine may use it.
type Consumer struct {
	arrived, redelivered, applied, duplicates, dead, repaired Counter
	reads, waited, fromOwner                                  Counter
	inFlight, blocked, memory                                 float64
	ages                                                      map[float64]float64
	lag                                                       []Point
}

// counters returns the value of each counter in m.
func (c *Consumer) counters(m Samples) map[*Counter]float64 {
	const events, reads = "inbox_events_total", "consistency_reads_total"
	return map[*Counter]float64{
		&c.arrived: m.Sum(events), &c.redelivered: m.Sum("inbox_redeliveries_total"), &c.applied: m.Sum(events, `outcome="applied"`),
		&c.duplicates: m.Sum(events, `outcome="duplicate"`) + m.Sum(events, `outcome="stale"`),
		&c.dead:       m.Sum("inbox_dead_letters_total"), &c.repaired: m.Sum("inbox_gaps_repaired_total"),
		&c.reads: m.Sum(reads), &c.waited: m.Sum(reads, `outcome="waited"`), &c.fromOwner: m.Sum(reads, `outcome="authority"`),
	}
}

// See takes the metrics of the process at that time.
func (c *Consumer) See(at time.Time, m Samples) {
	for counter, value := range c.counters(m) {
		counter.See(at, value)
	}
	c.inFlight, c.blocked = m.Sum("inbox_in_flight_messages"), m.Sum("inbox_blocked_aggregates")
	c.memory = m.Sum("process_resident_memory_bytes")
	ages := m.buckets("inbox_event_age_at_apply_seconds")
	c.point(Point{Median: milliseconds(quantile(0.5, c.ages, ages)), High: milliseconds(quantile(0.99, c.ages, ages))})
	c.ages = ages
}

// Away records that the process does not answer at that time.
func (c *Consumer) Away(at time.Time) {
	for counter := range c.counters(nil) {
		counter.Hold(at)
	}
	c.point(Point{Median: -1, High: -1})
}

func (c *Consumer) point(p Point) {
	c.lag = append(c.lag, p)
	if over := len(c.lag) - MaxPoints; over > 0 {
		c.lag = c.lag[over:]
	}
}

// milliseconds converts seconds. A negative value stays negative, because it stands for no value.
func milliseconds(seconds float64) float64 { return seconds * 1000 }

// Memory returns the memory of the process in bytes.
func (c *Consumer) Memory() float64 { return c.memory }

// Lag returns the latencies of the last minute, oldest first.
func (c *Consumer) Lag() []Point { return append([]Point(nil), c.lag...) }

// Stages returns the stages of the broker, the inbox, the projection and the fresh reads.
func (c *Consumer) Stages() []Stage {
	return []Stage{
		NewStage("Broker", &c.arrived, Note{Name: "redelivered", Value: c.redelivered.Total()}),
		NewStage("Inbox", &c.applied, Note{Name: "in hand", Value: int64(c.inFlight)},
			Note{Name: "duplicates", Value: c.duplicates.Total()},
			Note{Name: "dead letters", Value: c.dead.Total(), Alert: c.dead.Total() > 0}),
		NewStage("Projection", &c.applied, Note{Name: "gaps repaired", Value: c.repaired.Total()},
			Note{Name: "blocked", Value: int64(c.blocked), Alert: c.blocked > 0}),
		NewStage("Fresh reads", &c.reads, Note{Name: "waited", Value: c.waited.Total()},
			Note{Name: "from the owner", Value: c.fromOwner.Total()}),
	}
}

// NewStage returns a stage with the rate and the total of a counter.
func NewStage(name string, c *Counter, notes ...Note) Stage {
	return Stage{Name: name, Rate: c.Rate(), Total: c.Total(), Notes: notes}
}
