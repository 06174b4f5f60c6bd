package measure

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnderLoads counts the calls of each load: the collected times are as many milliseconds.
func TestUnderLoads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		values, err := UnderLoads(t.Context(), 100, 2*time.Second, func(context.Context, int) error {
			calls.Add(1)
			return nil
		}, func(context.Context) ([]time.Duration, error) {
			return []time.Duration{time.Duration(calls.Swap(0)) * time.Millisecond}, nil
		})
		if want := []float64{50, 50, 100, 100, 150, 150, 180, 180}; err != nil || !slices.Equal(values, want) {
			t.Errorf("values = %v, %v; want %v", values, err, want)
		}
	})
	var names []string
	for _, f := range LoadFigures("relay", "_4_relays") {
		names = append(names, f.Name)
	}
	tail := HalfLoadTail("relay", "_4_relays", "")
	if len(names) != 8 || !slices.Contains(names, tail.From[0]) || !slices.Contains(names, tail.From[1]) {
		t.Errorf("figures %v, the tail is of %v; want eight, with both of these", names, tail.From)
	}
}
