package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/rig/broker"
	"example.com/lockstep/cmd/bench/rig/readmodel"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

// The source document's tables and statements, and the bare ones on ours.
const (
	seedTables = `
		CREATE SCHEMA catalog_read;
		CREATE TABLE catalog_read.video_projection (
		  video_id uuid PRIMARY KEY, title text, version bigint NOT NULL, updated_at timestamptz NOT NULL);
		CREATE TABLE catalog_read.inbox (event_id uuid PRIMARY KEY, received_at timestamptz NOT NULL)`
	seedDedup  = `INSERT INTO catalog_read.inbox(event_id, received_at) VALUES ($1, now()) ON CONFLICT (event_id) DO NOTHING`
	seedUpsert = `
		INSERT INTO catalog_read.video_projection(video_id, title, version, updated_at) VALUES ($1, $2, $3, now())
		ON CONFLICT (video_id) DO UPDATE SET title = EXCLUDED.title, version = EXCLUDED.version, updated_at = now()
		WHERE catalog_read.video_projection.version < EXCLUDED.version`
	bareDedup = `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time,
		                   status, processed_at)
		SELECT $1, e, 'VideoUpdated', 'video', v::text, n, 'm', now(), 'done', now()
		  FROM unnest($2::uuid[], $3::uuid[], $4::bigint[]) AS b (e, v, n)
		ON CONFLICT DO NOTHING`
	bareUpsert = `
		INSERT INTO video_projection AS p (video_id, uploader_id, title, description, version, created_at, updated_at)
		SELECT v, v, t, 'a description', n, now(), now() FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS b (v, t, n)
		ON CONFLICT (video_id) DO UPDATE SET title = excluded.title, version = excluded.version, updated_at = now()
		WHERE p.version < excluded.version`
)

// fill puts so many settled events into the inbox: without its indexes, which are
// made afterwards, since that takes less time.
func fill(ctx context.Context, s *readmodel.Store, rows int) error {
	for _, statement := range []string{
		`ALTER TABLE catalog.inbox DROP CONSTRAINT inbox_pkey`,
		`DROP INDEX catalog.inbox_settled`,
		fmt.Sprintf(`
			INSERT INTO catalog.inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time,
			                           status, processed_at)
			SELECT '%s', ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'VideoUpdated', 'video',
			       gen_random_uuid()::text, 1, n::text, now(), 'done', now()
			  FROM generate_series(1, %d) n`, broker.Subject, rows),
		`ALTER TABLE catalog.inbox ADD PRIMARY KEY (consumer, event_id)`,
		`CREATE INDEX inbox_settled ON catalog.inbox (consumer, received_at) WHERE status IN ('done', 'discarded')`,
		`VACUUM (ANALYZE) catalog.inbox`,
		`CHECKPOINT`, // now, not in the middle of the measurement
	} {
		if _, err := s.Admin.Exec(ctx, statement); err != nil {
			return fmt.Errorf("fill the inbox: %w", err)
		}
	}
	return nil
}

// until returns the rate at which a consumer with this handler gets n events
// done.
func until(
	ctx context.Context, s *readmodel.Store, n int, run func(context.Context, inbox.Handler) error,
) (float64, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	// What is applied is not committed yet, but very soon.
	h, applied, soon := s.Projector.Handler(), 0, make(chan struct{})
	apply := h.Apply
	h.Apply = func(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
		outcomes, err := apply(ctx, tx, changes)
		if applied += len(outcomes); err == nil && applied == n {
			close(soon)
		}
		return outcomes, err
	}
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- run(running, h) }()
	select {
	case <-soon:
	case err := <-ended:
		return 0, errors.Join(errors.New("the consumer has ended"), err)
	}
	for versions := 0; versions < n; {
		err := s.Pool.QueryRow(ctx, `SELECT coalesce(sum(version), 0) FROM video_projection`).Scan(&versions)
		if err != nil {
			return 0, err
		}
	}
	rate := measure.PerSecond(n, start)
	stop()
	return rate, <-ended
}

// videoMessages are n messages: version 1 of every video, then 2, and so on.
func videoMessages(n int) ([]*pubsub.Message, error) {
	ids := make([]uuid.UUID, n/eventsPerVideo)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	var messages []*pubsub.Message
	for version := range int64(eventsPerVideo) {
		for _, id := range ids {
			e, err := readmodel.VideoEvent(id, version+1)
			if err != nil {
				return nil, err
			}
			messages = append(messages, readmodel.Message(e, fmt.Sprint(len(messages))))
		}
	}
	return messages, nil
}

// decodeTitle is all that the source document's loop reads of a message.
func decodeTitle(m *pubsub.Message) (eventing.Event, string, error) {
	e, err := eventing.ParseMessage(m.Data, m.Attributes)
	if err != nil {
		return e, "", err
	}
	var envelope eventsv1.Event
	if err := proto.Unmarshal(e.Payload, &envelope); err != nil {
		return e, "", err
	}
	if c := envelope.GetCreated(); c != nil {
		return e, c.GetTitle(), nil
	}
	return e, envelope.GetUpdated().GetTitle(), nil
}
