package instrument_test

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
)

// The first values keep their names, whatever comes later.
func TestFewNamesAreKept(t *testing.T) {
	t.Parallel()
	few := instrument.NewFew("tenant")
	named := func(o metric.MeasurementOption) string {
		set := metric.NewAddConfig([]metric.AddOption{o}).Attributes()
		v, _ := set.Value("tenant")
		return v.AsString()
	}
	for i := range 3 * instrument.MaxValues {
		want := fmt.Sprint(i)
		if i >= instrument.MaxValues {
			want = instrument.Other
		}
		if got := named(few.Of(fmt.Sprint(i))); got != want {
			t.Errorf("value %d is %q, want %q", i, got, want)
		}
	}
	if got := named(few.Of("3")); got != "3" {
		t.Errorf("value 3 became %q", got)
	}
}
