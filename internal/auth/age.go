package auth

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
)

// observe shows the ages of the keys until stop is called.
func (a *Authenticator) observe() (stop func()) {
	meter, began := instrument.For("example.com/lockstep/internal/auth"), time.Now()
	age := meter.Age("auth.keys.age", "Time since the keys of the issuer were fetched; without keys, since the start.")
	return meter.Observe(func(_ context.Context, o metric.Observer) error {
		for of, v := range map[string]*verifier{"users": a.users, "services": a.services} {
			if v != nil {
				o.ObserveFloat64(age, v.keys.age(began).Seconds(), metric.WithAttributes(attribute.String("identity", of)))
			}
		}
		return nil
	}, age)
}

// age is the time since the fetch of the keys in use began, or, where there are none, since
// the time given.
func (k *keys) age(since time.Time) time.Duration {
	if set := k.current.Load(); set != nil {
		since = set.asOf
	}
	return time.Since(since)
}
