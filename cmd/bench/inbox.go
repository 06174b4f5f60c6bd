package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/rig/broker"
	"example.com/lockstep/cmd/bench/rig/readmodel"
	"example.com/lockstep/internal/localbroker"
	"example.com/lockstep/pkg/eventing/inbox"
)

// The consuming side beside the loop of the source document, which takes one
// transaction per message, and beside what the database and the broker could do
// at best. All get the same events: of each video its creation, then updates.
// Memory hands them over as fast as they are taken.

// eventsPerVideo is how many versions each video has.
const eventsPerVideo = 4

// eventCounts is how many events a run has; the seed's loop gets fewer.
var eventCounts = [...]int{measure.Quick: 4_000, measure.Normal: 40_000, measure.Full: 100_000}

func inboxSeries() []measure.Series {
	return []measure.Series{{
		Title: "inbox: applying events",
		Measurements: []measure.Measurement{
			{Figures: eventRate("inbox.seed_1", "the source document's loop and tables, one message after the other"), Run: onStore(seedLoop(1))},
			{Figures: eventRate("inbox.seed_16", "the same, 16 messages at a time"), Run: onStore(seedLoop(16))},
			{Figures: eventRate("inbox.memory", "ours, fed from memory"), Run: onStore(fromMemory)},
			{Figures: eventRate("inbox.bare_sql", "our tables, 500 events a transaction, nothing decided"), Run: onStore(bareSQL)},
			{Figures: eventRate("inbox.bare_receive", "local Pub/Sub, ordered: receive and ack, nothing done"), Run: onBoth(bareReceive)},
			{Figures: eventRate("inbox.pubsub", "ours, from the local Pub/Sub"), Run: onBoth(fromPubSub)},
		},
		Derived: []measure.Derived{
			measure.Ratio("inbox.vs_seed", "inbox.memory", "inbox.seed_1", "8 or more wanted"),
			{
				Figure:  measure.Figure{Name: "inbox.vs_limit", Unit: "x", Note: "0.8 or more wanted; the limit is 1/(1/bare_receive + 1/bare_sql)"},
				RatioTo: "inbox.bare_receive and inbox.bare_sql", From: []string{"inbox.pubsub", "inbox.bare_receive", "inbox.bare_sql"},
				Compute: func(in []float64) float64 { return in[0] * (1/in[1] + 1/in[2]) },
			},
		},
	}, hugeInbox()}
}

func eventRate(name, note string) []measure.Figure {
	return []measure.Figure{{Name: name, Unit: "event/s", Note: note}}
}

// hugeInbox is what an inbox that has been kept for long costs.
func hugeInbox() measure.Series {
	behindRows := func(ctx context.Context, s *readmodel.Store, messages []*pubsub.Message) (float64, error) {
		if err := fill(ctx, s, 10_000_000); err != nil {
			return 0, err
		}
		return fromMemory(ctx, s, messages)
	}
	return measure.Series{
		Title: "inbox: applying events beside 10,000,000 that were applied before", From: measure.Full, Runs: 3,
		Measurements: []measure.Measurement{
			{Figures: eventRate("inbox.memory_0_rows", ""), Run: onStore(fromMemory)},
			{Figures: eventRate("inbox.memory_10m_rows", ""), Run: onStore(behindRows)},
		},
		Derived: []measure.Derived{measure.Ratio("inbox.at_10m_rows", "inbox.memory_10m_rows", "inbox.memory_0_rows", "")},
	}
}

// onStore measures on a database that nobody has used yet.
func onStore(apply func(context.Context, *readmodel.Store, []*pubsub.Message) (float64, error)) measure.Run {
	return func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		s, err := readmodel.Start(ctx)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		messages, err := videoMessages(eventCounts[size])
		if err != nil {
			return measure.Reading{}, err
		}
		if _, err := s.Admin.Exec(ctx, seedTables); err != nil {
			return measure.Reading{}, err
		}
		rate, err := apply(ctx, s, messages)
		return measure.Reading{Values: []float64{rate}}, err
	}
}

// onBoth is onStore with a server whose subscription has the messages.
func onBoth(apply func(context.Context, *readmodel.Store, *broker.Rig, int) (float64, error)) measure.Run {
	return onStore(func(ctx context.Context, s *readmodel.Store, messages []*pubsub.Message) (_ float64, err error) {
		r, err := broker.StartRig(ctx, true, "--kind", string(localbroker.Local))
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		if err := storeEvents(ctx, r, messages); err != nil {
			return 0, fmt.Errorf("store events: %w", err)
		}
		return apply(ctx, s, r, len(messages))
	})
}

// requests is how many are under way at a time.
const requests = 8

// storeEvents publishes messages, video by video: a request has one ordering key.
func storeEvents(ctx context.Context, r *broker.Rig, messages []*pubsub.Message) error {
	videos := len(messages) / eventsPerVideo
	publishing, ctx := errgroup.WithContext(ctx)
	publishing.SetLimit(requests)
	for v := range videos {
		var request []*pubsubpb.PubsubMessage
		for version := range eventsPerVideo {
			m := messages[version*videos+v]
			request = append(request,
				&pubsubpb.PubsubMessage{Data: m.Data, Attributes: m.Attributes, OrderingKey: m.OrderingKey})
		}
		publishing.Go(func() error {
			return broker.Publish(ctx, r.Client, request...)
		})
	}
	return publishing.Wait()
}

// fromMemory has a consumer apply messages that are there already.
func fromMemory(ctx context.Context, s *readmodel.Store, messages []*pubsub.Message) (float64, error) {
	client, err := broker.Unreachable(ctx)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return until(ctx, s, len(messages), func(ctx context.Context, h inbox.Handler) error {
		c, err := inbox.NewConsumer(s.Pool, client, broker.Subject, h, slog.New(slog.DiscardHandler), func() {})
		if err != nil {
			return err
		}
		return c.RunFrom(ctx, func(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
			for _, m := range messages {
				deliver(ctx, m)
			}
			<-ctx.Done()
			return nil
		})
	})
}

func fromPubSub(ctx context.Context, s *readmodel.Store, r *broker.Rig, n int) (float64, error) {
	return until(ctx, s, n, func(ctx context.Context, h inbox.Handler) error {
		c, err := inbox.NewConsumer(s.Pool, r.Client, broker.Subject, h, slog.New(slog.DiscardHandler), func() {})
		if err != nil {
			return err
		}
		return c.Run(ctx)
	})
}

// bareReceive has the flow control of a consumer.
func bareReceive(ctx context.Context, _ *readmodel.Store, r *broker.Rig, n int) (float64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sub := r.Client.Subscriber(broker.Subject)
	sub.ReceiveSettings.MaxOutstandingBytes, sub.ReceiveSettings.MaxOutstandingMessages = 64<<20, 10_000
	got := make(chan struct{}, n)
	ended := make(chan error, 1)
	start := time.Now()
	go func() {
		ended <- sub.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			m.Ack()
			got <- struct{}{}
		})
	}()
	for range n {
		select {
		case <-got:
		case err := <-ended:
			return 0, errors.Join(errors.New("receiving ended"), err)
		}
	}
	rate := measure.PerSecond(n, start)
	stop()
	return rate, <-ended
}

// seedLoop is the loop of the source document's §4.1, as it stands there.
func seedLoop(workers int) func(context.Context, *readmodel.Store, []*pubsub.Message) (float64, error) {
	return func(ctx context.Context, s *readmodel.Store, messages []*pubsub.Message) (float64, error) {
		lanes := make([][]*pubsub.Message, workers)
		n := 0
		for i, m := range messages {
			// One video of four: it is that slow. A video stays in its lane.
			if video := i % (len(messages) / eventsPerVideo); video%4 == 0 {
				lane := &lanes[video/4%workers]
				*lane = append(*lane, m)
				n++
			}
		}
		start := time.Now()
		working, ctx := errgroup.WithContext(ctx)
		for _, lane := range lanes {
			working.Go(func() error {
				for _, m := range lane {
					if err := seedApply(ctx, s.Admin, m); err != nil {
						return fmt.Errorf("seed's loop: %w", err)
					}
					m.Ack()
				}
				return nil
			})
		}
		err := working.Wait()
		return measure.PerSecond(n, start), err
	}
}

func seedApply(ctx context.Context, db *pgxpool.Pool, m *pubsub.Message) error {
	e, title, err := decodeTitle(m)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, seedDedup, e.ID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, seedUpsert, e.AggregateID, title, e.Version)
		return err
	})
}

// bareSQL is what the database can do with batches of 500 that are ready, one row
// per video in each: the dedup insert and the projection's upsert.
func bareSQL(ctx context.Context, s *readmodel.Store, messages []*pubsub.Message) (float64, error) {
	const perBatch = 500
	type columns struct {
		events, videos []uuid.UUID
		titles         []string
		versions       []int64
	}
	var batches []columns
	for rest := messages; len(rest) > 0; {
		n := min(perBatch, len(rest))
		var b columns
		for _, m := range rest[:n] {
			e, title, err := decodeTitle(m)
			if err != nil {
				return 0, err
			}
			b.events, b.videos = append(b.events, e.ID), append(b.videos, uuid.MustParse(e.AggregateID))
			b.titles, b.versions = append(b.titles, title), append(b.versions, e.Version)
		}
		batches, rest = append(batches, b), rest[n:]
	}
	start := time.Now()
	for _, b := range batches {
		err := pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, bareDedup, broker.Subject, b.events, b.videos, b.versions); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, bareUpsert, b.videos, b.titles, b.versions)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return measure.PerSecond(len(messages), start), nil
}
