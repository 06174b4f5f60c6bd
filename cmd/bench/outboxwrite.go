package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/cmd/bench/load"
	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/outbox/backlog"
	"example.com/lockstep/cmd/bench/rig/postgres"
	"example.com/lockstep/cmd/bench/rig/relay"
	"example.com/lockstep/pkg/eventing/outbox"
)

// writeVolumes are the time that each side has in all.
var writeVolumes = [...]time.Duration{
	measure.Quick: 200 * time.Millisecond, measure.Normal: time.Second, measure.Full: 3 * time.Second,
}

// write is what is done in one transaction, and after it.
type write struct {
	name, note string
	do         func(ctx context.Context, db *pgxpool.Pool) error
	wake       bool // the relay, after each commit
}

const insertVideo = `
	INSERT INTO videos (video_id, uploader_id, title, description, duration_seconds, version, created_at, updated_at)
	VALUES ($1, $2, $3, $4, $5, 1, $6, $6)`

// videoRow are the arguments of insertVideo.
func videoRow(id uuid.UUID, at time.Time) []any {
	return []any{id, id, "A title as people give", "A description of some length, as people write them.", 60, at}
}

// writeBusiness writes the video alone.
func writeBusiness(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertVideo, videoRow(uuid.Must(uuid.NewV7()), time.Now().UTC())...)
		return err
	})
}

// writeOutbox writes the video and its event as services/video does.
func writeOutbox(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		id, now := uuid.Must(uuid.NewV7()), time.Now().UTC()
		batch := &pgx.Batch{}
		batch.Queue(insertVideo, videoRow(id, now)...)
		return outbox.Append(ctx, tx, batch, relay.VideoCreated(id, now))
	})
}

// writePipelined sends the same two statements by hand.
func writePipelined(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		id, now := uuid.Must(uuid.NewV7()), time.Now().UTC()
		batch := &pgx.Batch{}
		batch.Queue(insertVideo, videoRow(id, now)...)
		batch.Queue(`
			INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at)
			VALUES ($1, 'video', $2, 'VideoCreated', 1, $3, $4)`, uuid.Must(uuid.NewV7()), id.String(), relay.Payload, now)
		return tx.SendBatch(ctx, batch).Close()
	})
}

// writeNotify is the source document's: three statements, the last one NOTIFY.
func writeNotify(ctx context.Context, db *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		id, now := uuid.Must(uuid.NewV7()), time.Now().UTC()
		batch := &pgx.Batch{}
		batch.Queue(insertVideo, videoRow(id, now)...)
		batch.Queue(`
			INSERT INTO app_outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
			VALUES ($1, 'video', $2, 'VideoCreated', 1, $3)`, uuid.Must(uuid.NewV7()), id.String(), relay.Payload)
		batch.Queue(`NOTIFY outbox_wake`)
		return tx.SendBatch(ctx, batch).Close()
	})
}

var (
	business  = write{"business", "the video's row alone", writeBusiness, false}
	pipelined = write{"pipelined", "the video's and the event's row, two statements in a batch", writePipelined, false}
	appended  = write{"outbox", "the same by Append, and Wake after the commit", writeOutbox, true}
	unwoken   = write{"outbox_no_wake", "the same without Wake", writeOutbox, false}
	notifying = write{"notify", "the source document's tables, and its NOTIFY in the transaction", writeNotify, false}
)

// figureName is that of a side at so many writers.
func (w write) figureName(writers int) string { return "write." + w.name + "_" + strconv.Itoa(writers) }

// outboxWriting returns the series.
func outboxWriting(p *postgres.Server) []measure.Series {
	vs := func(name string, of, to write, writers int, note string) measure.Derived {
		return measure.Ratio(name+"_"+strconv.Itoa(writers), of.figureName(writers), to.figureName(writers), note)
	}
	one, eight := writing(p, 1, business, appended, notifying), writing(p, 8, business, appended, notifying)
	sixteen, many := writing(p, 16, business, pipelined, appended), writing(p, 32, business, appended, unwoken, notifying)
	one.Derived = []measure.Derived{vs("write.vs_business", appended, business, 1, ""), vs("write.vs_notify", appended, notifying, 1, "")}
	eight.Derived = []measure.Derived{vs("write.vs_business", appended, business, 8, ""), vs("write.vs_notify", appended, notifying, 8, "")}
	sixteen.Derived = []measure.Derived{
		vs("write.vs_pipelined", appended, pipelined, 16, "0.9 or more wanted"),
		vs("write.vs_business", appended, business, 16, "0.6 or more wanted"),
	}
	many.Derived = []measure.Derived{
		vs("write.wake_vs_none", appended, unwoken, 32, "0.95 or more wanted"),
		vs("write.vs_business", appended, business, 32, ""),
		vs("write.vs_notify", appended, notifying, 32, ""),
	}
	return []measure.Series{one, eight, sixteen, many}
}

// writing is a series of one measurement, which takes its sides in turns of a
// fraction of a second: commits are at the mercy of whatever the machine does.
func writing(p *postgres.Server, writers int, sides ...write) measure.Series {
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		d, err := p.CopyOf(ctx, "the source document's tables", backlog.SourceTables)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, d.Drop(ctx)) }()
		rates, err := writes(ctx, d, sides, writers, writeVolumes[size])
		return measure.Reading{Values: rates}, err
	}}
	for _, w := range sides {
		m.Figures = append(m.Figures, measure.Figure{Name: w.figureName(writers), Unit: "tx/s", Note: w.note})
	}
	return measure.Series{Title: fmt.Sprintf("outbox: writing with %d writers", writers), Runs: 5, Measurements: []measure.Measurement{m}}
}

// writeTurns is how often each side gets its turn.
const writeTurns = 8

// writes lets writers commit, in turns for as long as limit says for each side,
// and returns transactions per second of each. Meanwhile a relay runs, and somebody
// listens to what the source document's writers tell.
func writes(ctx context.Context, d *postgres.Database, sides []write, writers int, limit time.Duration) (_ []float64, err error) {
	o, err := relay.Open(ctx, relay.Instant)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	o.Missing = true
	c, err := relay.NewCrew(ctx, d, o, 1)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.Start(ctx)
	db, err := d.Pool(ctx, writers)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	listening, deafen := context.WithCancel(ctx)
	ears, err := listen(listening, d)
	defer func() { deafen(); <-ears }()
	if err != nil {
		return nil, err
	}
	committed, took := make([]int64, len(sides)), make([]time.Duration, len(sides))
	for turn := range writeTurns + 1 {
		for i, w := range sides {
			start := time.Now()
			n, err := w.during(ctx, db, c, writers, limit/writeTurns)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			if turn > 0 { // in the first, connections prepare their statements
				committed[i] += n
				took[i] += time.Since(start)
			}
		}
	}
	rates := make([]float64, len(sides))
	for i := range rates {
		rates[i] = float64(committed[i]) / took[i].Seconds()
	}
	return rates, nil
}

// during returns how many transactions writers have committed when limit is over.
func (w write) during(ctx context.Context, db *pgxpool.Pool, c *relay.Crew, writers int, limit time.Duration) (int64, error) {
	var committed atomic.Int64
	err := load.Flood(ctx, writers, limit, func(ctx context.Context, _ int) error {
		if err := w.do(ctx, db); err != nil {
			return err
		}
		if w.wake {
			c.Wake(0)
		}
		committed.Add(1)
		return nil
	})
	return committed.Load(), err
}

// listen hears the source document's notifications until ctx ends; then the
// channel that it returns is closed, as it is after an error.
func listen(ctx context.Context, d *postgres.Database) (<-chan struct{}, error) {
	ended := make(chan struct{})
	conn, err := pgx.Connect(ctx, d.Service)
	if err == nil {
		_, err = conn.Exec(ctx, `LISTEN outbox_wake`)
	}
	if err != nil {
		close(ended)
		return ended, err
	}
	go func() {
		defer close(ended)
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
		}
	}()
	return ended, nil
}
