package measure

import (
	"context"
	"fmt"
	"time"
)

// loads are the parts of a full rate, in percent, under which latencies are measured.
var loads = [...]int{25, 50, 75, 90}

// UnderLoads calls do at random moments, at each of four parts of a full rate for limit, and
// returns the readings of [LoadFigures]. After each part, collect waits for the work that the calls have
// begun, and returns the time that each took.
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

// LoadFigures are the median and the p99 at each load, under names that begin with the subject
// and end with suffix.
func LoadFigures(subject, suffix string) (figures []Figure) {
	for _, load := range loads {
		for _, p := range []int{50, 99} {
			figures = append(figures, Figure{Name: loadFigure(subject, suffix, load, p), Unit: "ms", Note: fmt.Sprintf("at %d %% of the full load", load)})
		}
	}
	return figures
}

// HalfLoadTail derives the p99 at half load over its median.
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
