package localpubsub

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestAdvanceWaitsForARingingAlarm: the timer of a running clock has begun to ring an alarm. Advance returns after its end.
func TestAdvanceWaitsForARingingAlarm(t *testing.T) {
	t.Parallel()
	c, rings := NewClock(), make(chan struct{})
	var rang atomic.Bool
	c.newAlarm(func() {
		close(rings)
		<-time.After(50 * time.Millisecond)
		rang.Store(true)
	}).set(c.Now())
	<-rings
	c.Advance(time.Second)
	if !rang.Load() {
		t.Error("Advance has returned before the end of an alarm that was due")
	}
}
