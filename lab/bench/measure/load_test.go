package measure

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
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
	// An hour is far longer than a test may take: the error must end it.
	if err := Flood(t.Context(), 3, time.Hour, fail); !errors.Is(err, broken) {
		t.Errorf("Flood = %v, want what a call returned", err)
	}
}
