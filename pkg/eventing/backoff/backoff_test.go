package backoff

import (
	"context"
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

func TestAttempts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, end := range []int{1, 3} { // the first round ends by itself, the second one with ctx
		attempts := 0
		for n, pause := range (Policy{Base: 1, Cap: 4}).Attempts(ctx) {
			attempts++
			if attempts > end {
				t.Fatalf("attempt %d, want no more than %d", attempts, end)
			}
			if n != attempts || pause < 0 || pause > 4 {
				t.Errorf("attempt %d has the number %d and a pause of %v", attempts, n, pause)
			}
			if n == end && end == 1 {
				break
			}
			if n == end {
				cancel()
			}
		}
		if attempts != end {
			t.Errorf("%d attempts, want %d", attempts, end)
		}
	}
	for n := range (Policy{Base: time.Hour, Cap: time.Hour}).Attempts(ctx) {
		if n > 1 {
			t.Fatal("attempts go on although ctx has ended")
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	own, most := Policy{Base: time.Second, Cap: time.Minute}, 5*time.Minute
	for given, want := range map[Policy]Policy{
		{}:                                    own,
		{Base: 2 * time.Second}:               {Base: 2 * time.Second, Cap: time.Minute},
		{Cap: time.Millisecond}:               {Base: time.Second, Cap: time.Millisecond},
		{Base: -1, Cap: -1}:                   {Base: time.Millisecond, Cap: time.Millisecond},
		{Base: 1, Cap: 2}:                     {Base: time.Millisecond, Cap: time.Millisecond},
		{Base: time.Hour, Cap: 2 * time.Hour}: {Base: most, Cap: most},
	} {
		if got := given.Within(own, most); got != want {
			t.Errorf("%+v counts as %+v, want %+v", given, got, want)
		}
	}
}
