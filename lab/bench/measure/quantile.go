package measure

import (
	"slices"
	"time"
)

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Milliseconds returns d in the unit of the figures.
func Milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// Percentiles sorts took. For each p it returns the smallest time that p percent of the times do not
// exceed, in milliseconds. It never returns zero: a time of zero only means that the clock has not
// moved, but a figure of zero counts as a failure.
func Percentiles(took []time.Duration, ps ...int) []float64 {
	slices.Sort(took)
	values := make([]float64, len(ps))
	for i, p := range ps {
		values[i] = Milliseconds(max(took[(len(took)*p+99)/100-1], time.Microsecond))
	}
	return values
}

// PerSecond returns the rate of n events from the time since until now.
func PerSecond(n int, since time.Time) float64 { return float64(n) / time.Since(since).Seconds() }
