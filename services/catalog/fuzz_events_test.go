package catalog

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

// FuzzEvents reads a message with any data and attributes, and applies it twice, to a
// projection that has its aggregate. No message makes the handler panic, and the error of
// none looks like an outage: the consumer would try that message for ever.
func FuzzEvents(f *testing.F) {
	id := uuid.MustParse("0190a5d0-0000-7000-8000-000000000001")
	fix := setUp(f)
	fix.must(f, inbox.Applied, createdEvent(id, 1, "1"))
	seeds := []eventing.Event{
		createdEvent(id, 1, "a"), titled(id, 2, "b"), deletedEvent(id, 2), createdEvent(newVideoID(), 1, "a"),
		updatedEvent(id, 2, &eventsv1.VideoUpdated{Cleared: []string{"published_at", "x"}, PublishedAt: pb(1)}),
	}
	seeds = append(seeds, fix.fuzzedEngagement(f)...)
	for _, e := range seeds {
		m := e.Message()
		f.Add(m.GetData(), m.GetAttributes()["occurred_at"], e.AggregateType, e.AggregateID, e.Type, e.Version, "default")
	}
	f.Fuzz(func(t *testing.T, data []byte, occurred, aggregate, key, kind string, version int64, tenant string) {
		e, err := eventing.ParseMessage(agreeing(data, aggregate, key, version), map[string]string{
			"event_id": uuid.Max.String(), "aggregate_type": aggregate, "aggregate_id": key, "event_type": kind,
			"version": strconv.FormatInt(version, 10), "schema_version": "1", "occurred_at": occurred, "tenant_id": tenant,
		})
		if err != nil {
			return
		}
		tx := pgtest.Begin(t, fix.pool)
		defer func() { _ = tx.Rollback(t.Context()) }()
		for range 2 {
			if _, err = inbox.ApplyOne(t.Context(), tx, fix.projector.Handler(), e); err != nil {
				break
			}
		}
		pg, _ := errors.AsType[*pgconn.PgError](err)
		lost := pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed)
		if err != nil && (lost || strings.Contains(err.Error(), "panic") || pg != nil && pg.Code[:2] != "22" && pg.Code[:2] != "23") {
			t.Errorf("%+v: %v", e, err)
		}
	})
}

// agreeing is data with the ids and the version of its attributes, where it is an event.
func agreeing(data []byte, aggregate, key string, version int64) []byte {
	agree, known := agreements[aggregate]
	if !known {
		agree = agreeingVideo
	}
	changed := agree(data, aggregate, key, version)
	again, err := proto.Marshal(changed)
	if err != nil || changed == nil {
		return data
	}
	return again
}

// agreements return nil for what is no event.
var agreements = map[string]func(data []byte, aggregate, key string, version int64) proto.Message{
	videoType:      agreeingVideo,
	engagementType: agreeingEngagement,
}

func agreeingVideo(data []byte, aggregate, key string, version int64) proto.Message {
	e := &eventsv1.Event{}
	if proto.Unmarshal(data, e) != nil {
		return nil
	}
	e.EventId, e.AggregateType, e.AggregateId, e.Version = uuid.Max.String(), aggregate, key, version
	if p := e.GetCreated(); p != nil {
		p.VideoId, p.Version = key, version
	}
	if p := e.GetUpdated(); p != nil {
		p.VideoId, p.Version = key, version
	}
	if p := e.GetDeleted(); p != nil {
		p.VideoId, p.Version = key, version
	}
	return e
}
