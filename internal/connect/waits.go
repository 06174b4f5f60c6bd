package connect

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
)

// countWaits reports the sums that pgxpool keeps about the waits for its connections, as metrics.
// All pools of a process are reported together.
func countWaits(pool *pgxpool.Pool) {
	meter := instrument.For(scope)
	acquires := meter.Sum("database.pool.acquires", "{acquire}", "Waits for a database connection that ended with one")
	canceled := meter.Sum("database.pool.canceled_acquires", "{acquire}",
		"Waits that were given up, because the time of the request or the loop was over; a refused connection is not counted")
	wait := meter.Sum("database.pool.wait", "s", "Time of all waits that ended with a connection")
	meter.Observe(func(_ context.Context, o metric.Observer) error {
		s := pool.Stat()
		o.ObserveFloat64(acquires, float64(s.AcquireCount()))
		o.ObserveFloat64(canceled, float64(s.CanceledAcquireCount()))
		o.ObserveFloat64(wait, s.AcquireDuration().Seconds())
		return nil
	}, acquires, canceled, wait)
}
