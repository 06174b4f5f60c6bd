package instrument_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/pkg/eventing/instrument"
)

// An instrument is made in one line, and reports to OpenTelemetry's provider.
func ExampleMeter_Counter() {
	ctx := context.Background()
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))

	placed := instrument.For("example.com/bakery").Counter("orders.placed", "{order}", "Orders that were placed")
	placed.Add(ctx, 2)

	var now metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &now); err != nil {
		panic(err)
	}
	for _, m := range now.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name, m.Unit, m.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
	}
	// Output: orders.placed {order} 2
}
