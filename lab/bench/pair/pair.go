// Package pair measures the whole pair. A unit of work creates a video over REST at video, and then
// reads it at catalog with its token. So a unit includes the write, the outbox, the relay, the
// broker, the consumer and the wait of a reader. Both services are the deployed binaries in their
// own processes. Postgres, the local Pub/Sub and the clients are on the same machine.
//
// The load is open. A unit is due at a fixed moment, even if the earlier units have not ended, and
// the time of the unit counts from that moment. The steps of the load go up to the knee and beyond
// it. The knee is the highest rate at which the p99 is 100 ms or less and at most one unit of a
// thousand has no fresh read.
//
//	system.go   both services, and the places that Cloud Run gives a request
//	curve.go    the steps of the load, the knee, the recovery
//	bare.go     the same rows by hand
//	cost.go     CPU time, bytes and transactions of a video
//	plot.go     the curve as a picture; axis.go: its axes
package pair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// picture is the file with the curve of the median run.
const picture = "build/pair.svg"

// volumes is the duration of each step of the load, by size.
var volumes = [...]time.Duration{
	measure.Quick: 300 * time.Millisecond, measure.Normal: time.Second, measure.Full: 5 * time.Second,
}

// Series returns the series.
func Series(p *rig.Postgres) []measure.Series {
	const knee, bare = "pair.knee", "pair.bare_writes"
	var drawn curves
	return []measure.Series{{
		Title: "the pair: a video is created over REST, and read with its token",
		Measurements: []measure.Measurement{
			{Figures: []measure.Figure{
				{Name: knee, Unit: "video/s", Note: "the highest rate with p99 of 100 ms or less, from the request's due time to the fresh read"},
				{Name: "pair.knee_p50_ms", Unit: "ms"},
				{Name: "pair.knee_p99_ms", Unit: "ms"},
				{Name: "pair.half_knee_p99_ms", Unit: "ms", Note: "at half of the knee, after the overload"},
				{Name: "pair.beyond_knee_other_errors", Unit: "", MayBeZero: true, Note: "answers other than 429 and 503; 0 wanted"},
				{Name: "pair.beyond_knee_served", Unit: "x", Note: "fresh reads a second at the highest load, over the knee"},
				{Name: "pair.recovery_s", Unit: "s", MayBeZero: true,
					Note: "from the end of the overload to the last unit above 100 ms, at half of the knee"},
			}, Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
				return curveOf(ctx, p, volumes[size], &drawn)
			}},
			{Figures: []measure.Figure{{Name: bare, Unit: "video/s", Note: fmt.Sprintf(
				"the same four rows by hand: video, event, inbox, projection; one transaction a video, %d writers", rig.Committers)}},
				Run: measure.Single(volumes, func(ctx context.Context, limit time.Duration) (float64, error) {
					return bareWrites(ctx, p, limit)
				})},
		},
		Derived: []measure.Derived{measure.Ratio("pair.knee_vs_bare_writes", knee, bare, "0.25 or more wanted")},
	}, costs(p)}
}

// curveOf measures the curve of a new pair once.
func curveOf(ctx context.Context, p *rig.Postgres, step time.Duration, drawn *curves) (_ measure.Reading, err error) {
	s, err := start(ctx, p)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c, err := take(ctx, s.walk, step)
	if err != nil {
		return measure.Reading{}, err
	}
	if err := drawn.draw(c, picture); err != nil {
		return measure.Reading{}, err
	}
	top, knee := c.top(), c.knee()
	return measure.Reading{
		Values: []float64{knee.rate, knee.p50, knee.p99, c.after.p99, float64(c.otherErrors()), top.served / knee.rate, c.recovery.Seconds()},
		Note:   c.note() + "; drawn in " + picture,
	}, nil
}
