package measure

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestPacedMakesEachCallOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var made []int
	took, err := Paced(t.Context(), 1e6, 20, func(_ context.Context, i int) error {
		mu.Lock()
		defer mu.Unlock()
		made = append(made, i)
		return nil
	})
	slices.Sort(made)
	if err != nil || len(took) != 20 || len(made) != 20 || made[0] != 0 || made[19] != 19 {
		t.Errorf("calls %v, %d times, %v; want 0 to 19", made, len(took), err)
	}
}

func TestAnErrorEndsTheLoad(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fail := func(context.Context, int) error { return broken }
	if _, err := Paced(t.Context(), 1e6, 20, fail); !errors.Is(err, broken) {
		t.Errorf("Paced = %v, want what a call returned", err)
	}
	if _, err := Offered(t.Context(), 1e6, 20, fail); !errors.Is(err, broken) {
		t.Errorf("Offered = %v, want what a call returned", err)
	}
	// An hour is far longer than a test may take: the error must end it.
	if err := Flood(t.Context(), 3, time.Hour, fail); !errors.Is(err, broken) {
		t.Errorf("Flood = %v, want what a call returned", err)
	}
}

func TestOfferedCallsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		starts := make([]time.Duration, 4)
		took, err := Offered(t.Context(), 10, len(starts), func(_ context.Context, i int) error {
			starts[i] = time.Since(start)
			<-time.After(time.Second)
			return nil
		})
		wantStarts := []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}
		want := slices.Repeat([]time.Duration{time.Second}, 4)
		if err != nil || !slices.Equal(took, want) || !slices.Equal(starts, wantStarts) {
			t.Errorf("calls of a second each began at %v and took %v, %v; want %v and %v", starts, took, err, wantStarts, want)
		}
	})
}
