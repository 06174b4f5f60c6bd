package measure

import (
	"context"
	"fmt"
	"time"
)

// loads are the loads at which latencies are measured, in percent of the full rate.
var loads = [...]int{25, 50, 75, 90}

// UnderLoads calls do at random moments, at each of the loads for the duration limit. full is the
// full rate. UnderLoads returns the values of [LoadFigures]. After each load, collect waits for the
// work that the calls have begun, and returns the time that each piece of work took.
func UnderLoads(
	ctx context.Context, full float64, limit time.Duration, do func(context.Context, int) error,
	collect func(context.Context) ([]time.Duration, error),
) (values []float64, err error) {
	for _, load := range loads {
		rate := full * float64(load) / 100
		if _, err := Paced(ctx, rate, max(1, int(rate*limit.Seconds())), do); err != nil {
			return nil, err
		}
		took, err := collect(ctx)
		if err != nil {
			return nil, err
		}
		values = append(values, Percentiles(took, 50, 99)...)
	}
	return values, nil
}

// LoadFigures returns the figures for the median and the p99 at each load. Their names begin with
// subject and end with suffix.
func LoadFigures(subject, suffix string) (figures []Figure) {
	for _, load := range loads {
		note := fmt.Sprintf("at %d %% of the full load", load)
		for _, p := range []int{50, 99} {
			figures = append(figures, Figure{Name: loadFigure(subject, suffix, load, p), Unit: "ms", Note: note})
		}
	}
	return figures
}

// HalfLoadTail derives the ratio of the p99 to the median, both at half load.
func HalfLoadTail(subject, suffix, note string) Derived {
	median := loadFigure(subject, suffix, 50, 50)
	return Ratio(subject+".half_load_p99_over_p50"+suffix, loadFigure(subject, suffix, 50, 99), median, note)
}

func loadFigure(subject, suffix string, load, p int) string {
	name := fmt.Sprintf("load_%d", load)
	if load == 50 {
		name = "half_load"
	}
	return fmt.Sprintf("%s.%s_p%d_ms%s", subject, name, p, suffix)
}
