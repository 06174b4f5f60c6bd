package pair

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// costRates are rates in videos per second. They are below the knee of a slow machine.
var costRates = []float64{10, 100, 400}

// costVolume has the durations of a measurement of costs.
type costVolume struct {
	// rate is the duration of the load at each rate. It must be long, because CPU time has steps of 10 ms.
	rate time.Duration
	// reports is the time that the sessions have to report their transactions to Postgres's statistics. A busy
	// session reports once a second. A session that has become idle reports within ten seconds.
	reports time.Duration
}

var costVolumes = [...]costVolume{
	measure.Quick:  {time.Second, time.Second},
	measure.Normal: {3 * time.Second, 10 * time.Second},
	measure.Full:   {30 * time.Second, 10 * time.Second},
}

// costs returns the series of the cost of a video at several rates. The cost is the write of the
// video, its event and a fresh read, plus a share of the loops that run in any case.
func costs(p *rig.Postgres) measure.Series {
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		s, err := start(ctx, p)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if err := measure.Flood(ctx, clients, time.Second, func(ctx context.Context, _ int) error { // plans and connections
			_, err := s.walk(ctx)
			return err
		}); err != nil {
			return measure.Reading{}, err
		}
		var reading measure.Reading
		for _, rate := range costRates {
			values, err := s.cost(ctx, rate, costVolumes[size])
			if err != nil {
				return measure.Reading{}, err
			}
			reading.Values = append(reading.Values, values...)
		}
		return reading, nil
	}}
	for _, rate := range costRates {
		name := func(of string) string { return fmt.Sprintf("pair.%s_at_%.0f", of, rate) }
		m.Figures = append(m.Figures,
			measure.Figure{Name: name("services_cpu_us"), Unit: "us", Note: "CPU time of both services for a video"},
			measure.Figure{Name: name("postgres_cpu_us"), Unit: "us", Note: "of their sessions", MayBeZero: true},
			measure.Figure{Name: name("wal_bytes"), Unit: "B", Note: "of the write-ahead log, in both schemas"},
			measure.Figure{Name: name("transactions"), Unit: "", Note: "in both schemas, also of reads, and of the loops until sessions report"})
	}
	return measure.Series{
		Title: "the pair: the cost of a video at 10, 100 and 400 a second", Long: true, Runs: 1, Measurements: []measure.Measurement{m},
	}
}

// cpu is the CPU time that the pair has taken up to a moment.
type cpu struct{ services, sessions time.Duration }

// written has the bytes of the write-ahead log and the transactions of the pair up to a moment.
type written struct{ wal, transactions int64 }

// cost offers videos at the rate. It returns the CPU time, the bytes and the transactions that the pair
// takes for a video that is created and read. A refused request costs almost nothing, so it does not
// count as a video. The CPU time is read directly before and after the load. So it leaves out the time
// in which the sessions report.
func (s *system) cost(ctx context.Context, rate float64, v costVolume) ([]float64, error) {
	var from, to cpu
	var before, after written
	var p point
	err := errors.Join(s.written(ctx, v.reports, &before), s.cpu(ctx, &from))
	if err != nil {
		return nil, err
	}
	if p, _, err = offer(ctx, s.walk, rate, v.rate); err != nil {
		return nil, err
	}
	videos := p.answers[http.StatusOK]
	if videos == 0 {
		return nil, fmt.Errorf("no video of %d at %.0f a second was created and read", p.offered, rate)
	}
	err = errors.Join(s.cpu(ctx, &to), s.written(ctx, v.reports, &after))
	each := func(v int64) float64 { return float64(v) / float64(videos) }
	return []float64{
		each((to.services - from.services).Microseconds()), each((to.sessions - from.sessions).Microseconds()),
		each(after.wal - before.wal), each(after.transactions - before.transactions),
	}, err
}

// cpu reads the CPU time. It includes only the sessions that exist now. The sessions that have ended are few.
func (s *system) cpu(ctx context.Context, c *cpu) error {
	pids, err := s.database.Sessions(ctx)
	if err == nil {
		*c = cpu{rig.CPU(s.video.PID, s.catalog.PID), rig.CPU(pids...)}
	}
	return err
}

// written waits for the time reports, in which the sessions report their transactions, and then reads
// the statistics of the database. The loops of the services go on meanwhile.
func (s *system) written(ctx context.Context, reports time.Duration, w *written) error {
	return s.database.AsAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, `SELECT pg_sleep(0.1 + $1::float)`, reports.Seconds()); err != nil {
			return err
		}
		return conn.QueryRow(ctx, `
			SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, xact_commit
			  FROM pg_stat_database WHERE datname = current_database()`).Scan(&w.wal, &w.transactions)
	})
}
