package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/rig/broker"
	"example.com/lockstep/internal/localpg"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	"example.com/lockstep/services/catalog"
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

// catalogStore is a Postgres that nobody has used yet, with the catalog's tables
// and those of the source document. Its commits reach the disk, as in production.
type catalogStore struct {
	server     *localpg.Server
	seed, pool *pgxpool.Pool // as the administrator, and as the service
	owner      *grpc.ClientConn
	projector  *catalog.Projector
}

func newCatalogStore(ctx context.Context) (_ *catalogStore, err error) {
	s := new(catalogStore)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.server, err = localpg.Start(ctx, localpg.Options{Sync: true}); err != nil {
		return nil, fmt.Errorf("%w: %w", measure.ErrMissing, err)
	}
	if err := migrations.Up(ctx, s.server.URL(), migrations.Catalog, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	url, err := localpg.ServiceURL(ctx, s.server.URL(), "", migrations.Catalog.Role())
	if err != nil {
		return nil, err
	}
	if s.seed, err = pgxpool.New(ctx, s.server.URL()+"&pool_max_conns=20"); err != nil {
		return nil, err
	}
	if _, err := s.seed.Exec(ctx, seedTables); err != nil {
		return nil, err
	}
	if s.pool, err = pgxpool.New(ctx, url); err != nil {
		return nil, err
	}
	// There are no gaps to ask about.
	if s.owner, err = grpc.NewClient(broker.Nobody, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, err
	}
	s.projector = catalog.NewProjector(s.pool, s.owner, catalog.NewWaiters(s.pool, "", slog.New(slog.DiscardHandler)))
	return s, nil
}

func (s *catalogStore) close() error {
	for _, pool := range []*pgxpool.Pool{s.seed, s.pool} {
		if pool != nil {
			pool.Close()
		}
	}
	var errs []error
	if s.owner != nil {
		errs = append(errs, s.owner.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	return errors.Join(errs...)
}

// fill puts so many settled events into the inbox: without its indexes, which are
// made afterwards, since that takes less time.
func (s *catalogStore) fill(ctx context.Context, rows int) error {
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
		if _, err := s.seed.Exec(ctx, statement); err != nil {
			return fmt.Errorf("fill the inbox: %w", err)
		}
	}
	return nil
}

// until returns the rate at which a consumer with this handler gets n events
// done.
func (s *catalogStore) until(ctx context.Context, n int, run func(context.Context, inbox.Handler) error) (float64, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	// What is applied is not committed yet, but very soon.
	h, applied, soon := s.projector.Handler(), 0, make(chan struct{})
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
		err := s.pool.QueryRow(ctx, `SELECT coalesce(sum(version), 0) FROM video_projection`).Scan(&versions)
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
			e, err := videoEvent(id, version+1)
			if err != nil {
				return nil, err
			}
			m := e.Message()
			messages = append(messages, &pubsub.Message{
				ID: fmt.Sprint(len(messages)), Data: m.GetData(),
				Attributes: m.GetAttributes(), OrderingKey: m.GetOrderingKey(), PublishTime: e.OccurredAt,
			})
		}
	}
	return messages, nil
}

// videoEvent is the creation of a video at version 1, then a new title each time.
func videoEvent(id uuid.UUID, version int64) (eventing.Event, error) {
	e := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: id.String(), Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.Epoch,
	}
	title := fmt.Sprintf("Title of version %d", version)
	envelope := eventsv1.Event{
		EventId: e.ID.String(), AggregateId: e.AggregateID, AggregateType: e.AggregateType, Version: version,
		OccurredAt: timestamppb.New(e.OccurredAt),
		Payload:    &eventsv1.Event_Updated{Updated: &eventsv1.VideoUpdated{VideoId: e.AggregateID, Version: version, Title: &title}},
	}
	if version == 1 {
		e.Type = "VideoCreated"
		envelope.Payload = &eventsv1.Event_Created{Created: &eventsv1.VideoCreated{
			VideoId: e.AggregateID, Version: version, UploaderId: e.ID.String(), Title: title,
			Description: "A description of some length, as people write them.", DurationSeconds: 60,
		}}
	}
	var err error
	e.Payload, err = proto.Marshal(&envelope)
	return e, err
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
