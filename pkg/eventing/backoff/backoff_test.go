package backoff

import (
	"testing"
	"time"
)

func TestCeilings(t *testing.T) {
	t.Parallel()
	p := Policy{Base: 100 * time.Millisecond, Cap: time.Second}
	for attempt, want := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 3: 400 * time.Millisecond,
		4: 800 * time.Millisecond, 5: time.Second, 6: time.Second, 1_000_000: time.Second,
	} {
		if got := p.ceiling(attempt); got != want {
			t.Errorf("attempt %d: ceiling %v, want %v", attempt, got, want)
		}
		if d := p.Delay(attempt); d < 0 || d > want {
			t.Errorf("attempt %d: delay %v is not within 0 and %v", attempt, d, want)
		}
	}
}
