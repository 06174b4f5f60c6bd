package localpubsub

import (
	"container/heap"
	"sync"
	"time"
)

// Clock is the clock of a server. Publish times, leases, backoff, retention and expiry all follow
// it. A running clock follows the machine's clock, and can also be advanced. A still clock moves
// only when it is advanced. So a test of a retention of one week does not take a week. The waits of
// injected latency always follow the machine's clock.
//
// A Clock is safe for concurrent use and may be shared between servers.
type Clock struct {
	mu     sync.Mutex
	still  bool
	now    time.Time     // of a still clock
	ahead  time.Duration // how far a running clock is ahead of the machine's clock
	alarms alarmHeap
	timer  *time.Timer

	ringing sync.Mutex // held while alarms run; taken before mu
}

// NewClock returns a clock that runs.
func NewClock() *Clock { return &Clock{} }

// NewStillClock returns a clock that shows the time at. Only [Clock.Advance] moves it.
func NewStillClock(at time.Time) *Clock { return &Clock{still: true, now: at} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

func (c *Clock) read() time.Time {
	if c.still {
		return c.now
	}
	return time.Now().Add(c.ahead)
}

// Advance moves the clock forward by d, which must not be negative. When
// Advance returns, all alarms up to the new time have run, in the order of
// their times.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	if c.still {
		c.now = c.now.Add(d)
	} else {
		c.ahead += d
	}
	c.mu.Unlock()
	c.ring()
}

// ring runs the alarms that are due. An alarm may set itself or other alarms
// again. If another goroutine runs alarms, ring waits for it.
func (c *Clock) ring() {
	c.ringing.Lock()
	defer c.ringing.Unlock()
	for {
		c.mu.Lock()
		if len(c.alarms) == 0 || c.alarms[0].at.After(c.read()) {
			c.setTimer()
			c.mu.Unlock()
			return
		}
		due := heap.Pop(&c.alarms).(*alarm)
		c.mu.Unlock()
		due.ring()
	}
}

// setTimer sets the machine's timer to the next alarm. A still clock needs no
// timer.
func (c *Clock) setTimer() {
	if c.still || len(c.alarms) == 0 {
		return
	}
	wait := c.alarms[0].at.Sub(c.read())
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.ring)
		return
	}
	c.timer.Reset(wait)
}

// An alarm calls ring once when its time has come. The call is on the goroutine of Advance or of
// the clock's timer.
type alarm struct {
	clock *Clock
	ring  func()
	at    time.Time
	index int // in the clock's heap; -1 if the alarm is not set
}

func (c *Clock) newAlarm(ring func()) *alarm {
	return &alarm{clock: c, ring: ring, index: -1}
}

// set sets the alarm to the time at. This replaces the alarm's earlier time.
func (a *alarm) set(at time.Time) {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	a.at = at
	if a.index < 0 {
		heap.Push(&a.clock.alarms, a)
	} else {
		heap.Fix(&a.clock.alarms, a.index)
	}
	if a.index == 0 {
		a.clock.setTimer()
	}
}

// stop cancels the alarm. A ring that has already started runs to its end.
func (a *alarm) stop() {
	a.clock.mu.Lock()
	defer a.clock.mu.Unlock()
	if a.index >= 0 {
		heap.Remove(&a.clock.alarms, a.index)
	}
}

type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	a.index = len(*h)
	*h = append(*h, a)
}

func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = -1
	return a
}
