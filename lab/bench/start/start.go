// Package start measures cold starts, from exec to ready. Each service is the deployed binary in
// its own process. It has a migrated database and a provisioned broker. The package also measures
// the memory of a service at rest.
package start

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/migrations"
)

// restTime is the time for which a ready service is idle before its memory is read.
var restTime = [...]time.Duration{measure.Quick: time.Second, measure.Normal: 2 * time.Second, measure.Full: 30 * time.Second}

// Series returns the series.
func Series(p *rig.Postgres) []measure.Series {
	s := measure.Series{Title: "cold start to ready, with migrations done, and memory at rest"}
	for _, service := range []migrations.Service{migrations.Video, migrations.Catalog} {
		s.Measurements = append(s.Measurements, measure.Measurement{
			Figures: []measure.Figure{
				{Name: fmt.Sprintf("start.%s_ready_ms", service), Unit: "ms", Note: "from exec to the first 200 of /readyz; 300 or less wanted"},
				{Name: fmt.Sprintf("start.%s_rss_mb", service), Unit: "MB", Note: "40 or less wanted"},
			},
			Run: func(ctx context.Context, size measure.Size) (measure.Reading, error) {
				return coldStart(ctx, p, service, restTime[size])
			},
		})
	}
	return []measure.Series{s}
}

// coldStart starts the service once. catalog runs without its owner, because catalog does not call
// the owner at rest.
func coldStart(ctx context.Context, p *rig.Postgres, service migrations.Service, rest time.Duration) (_ measure.Reading, err error) {
	d, err := p.ForBoth(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, d.Drop(ctx)) }()
	local, err := rig.StartProvisionedBroker(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	running, err := rig.StartService(ctx, service, d, append(local.Environment(), "VIDEO_SERVICE_ADDR="+rig.NoListener))
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, running.Kill()) }()
	return atRest(ctx, running, rest)
}

// atRest leaves the service idle, and reads its memory.
func atRest(ctx context.Context, s *rig.Service, rest time.Duration) (measure.Reading, error) {
	select {
	case <-time.After(rest):
	case <-s.Ended():
		return measure.Reading{}, fmt.Errorf("the service ended: %s", s.Output())
	case <-ctx.Done():
		return measure.Reading{}, ctx.Err()
	}
	memory, err := rig.RSS(s.PID)
	if err != nil {
		return measure.Reading{}, err
	}
	return measure.Reading{Values: []float64{measure.Milliseconds(s.Ready), memory}}, nil
}
