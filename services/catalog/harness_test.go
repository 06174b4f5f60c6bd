package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/notify"
	"example.com/lockstep/pkg/eventing/tenant"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

// everyone is the caller of tests that are not about identity.
var everyone = auth.Principal{Kind: auth.Everyone, Tenant: eventing.DefaultTenant}

// openGuard admits everyone.
func openGuard() *serve.Guard { return serve.NewGuard(access, auth.Open(), serve.Options{}) }

func TestMain(m *testing.M) { pairtest.Main(m) }

// fixture is a catalog on a database of its own, with a peer as its owner.
type fixture struct {
	pool      *pgxpool.Pool
	admin     *pgxpool.Pool
	looks     *atomic.Int64 // reads of the projection by users that have ended
	peer      *peer
	owner     *grpc.ClientConn
	notifier  *notify.Notifier
	waiters   *consistency.Waiters
	projector *Projector
	service   *Service
}

func setUp(t testing.TB) *fixture {
	t.Helper()
	return setUpWith(t, MaxWaiting)
}

func setUpWith(t testing.TB, waiters int) *fixture {
	t.Helper()
	pg := pairtest.New(t)
	opened, err := connect.OpenPool(t.Context(), pg.CatalogURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg := opened.Config()
	opened.Close()
	f := &fixture{
		admin: pg.Pool(t, pg.Admin),
		looks: new(atomic.Int64),
		peer:  newPeer(),
	}
	cfg.ConnConfig.Tracer = &pgtest.Tracer{After: func(trip pgtest.Trip, _ error) {
		if trip.Contains("eventing.tenant") {
			f.looks.Add(1)
		}
	}}
	f.pool = pgtest.Open(t, cfg)
	lis := porttest.Listen(t)
	server := grpc.NewServer()
	f.peer.register(server)
	go server.Serve(lis)
	t.Cleanup(server.Stop)
	conn, err := connect.Dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f.wait(t, waiters, conn)
	return f
}

// wait gives f waiters, and a service that uses them.
func (f *fixture) wait(t testing.TB, limit int, owner *grpc.ClientConn) {
	t.Helper()
	f.owner, f.notifier = owner, notify.New(f.pool, "", "consistency", quiet())
	f.waiters = newWaiters(limit, f.pool, f.notifier)
	running, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- f.waiters.Run(running, quiet(), func() {}) }()
	t.Cleanup(func() {
		stop()
		<-ran
	})
	f.projector = NewProjector(f.pool, owner, f.waiters, quiet())
	f.service = NewService(f.pool, f.projector)
}

// otherInstance starts another instance on f's database. Each receives the other's notifications.
func (f *fixture) otherInstance(t *testing.T) *fixture {
	t.Helper()
	other := &fixture{pool: f.pool, looks: f.looks, peer: f.peer}
	other.wait(t, MaxWaiting, f.owner)
	eventually(t, func() bool { return f.notifier.Connected() && other.notifier.Connected() })
	return other
}

// apply puts e through Apply in a transaction of its own and, like the consumer,
// notifies the waiters.
func (f *fixture) apply(t testing.TB, e eventing.Event) (o inbox.Outcome, err error) {
	t.Helper()
	err = pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
		o, err = inbox.ApplyOne(t.Context(), tx, f.projector.Handler(), e)
		return err
	})
	if err == nil && o == inbox.Applied {
		f.waiters.Notify(t.Context(), consistency.PositionOf(e))
	}
	return o, err
}

// must is apply; it fails the test unless the outcome is want.
func (f *fixture) must(t testing.TB, want inbox.Outcome, events ...eventing.Event) {
	t.Helper()
	for _, e := range events {
		if o, err := f.apply(t, e); err != nil || o != want {
			t.Fatalf("apply %s version %d: %v, %v; want %v", e.Type, e.Version, o, err, want)
		}
	}
}

// whileWaiting runs meanwhile once the reader that read starts is waiting, and returns
// when both have ended. A reader misses no commit after its own first read.
func (f *fixture) whileWaiting(t testing.TB, read, meanwhile func()) {
	t.Helper()
	before := f.looks.Load()
	var reader sync.WaitGroup
	reader.Go(read)
	eventually(t, func() bool { return f.looks.Load() > before })
	meanwhile()
	reader.Wait()
}

// patience ends a test that would otherwise hang.
const patience = 2 * time.Minute

func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come true")
		}
	}
}

func (f *fixture) row(t testing.TB, id uuid.UUID) Video {
	t.Helper()
	v, err := readVideo(t.Context(), f.pool, tenant.All(), id)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// start is when a video begins in the story of a test; version n happens n minutes
// later.
var start = time.Date(2026, 3, 4, 5, 6, 7, 891_011_000, time.UTC)

func at(version int64) time.Time   { return start.Add(time.Duration(version) * time.Minute) }
func atp(version int64) *time.Time { return new(at(version)) }

func pb(version int64) *timestamppb.Timestamp { return timestamppb.New(at(version)) }

func newVideoID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

var uploader = uuid.MustParse("6a1b52a9-33cd-4b1c-8e52-2b7a3a4b8f10")

func token(id uuid.UUID, version int64) string { return tokenOf(position(id, version)) }

func position(id uuid.UUID, version int64) consistency.Position {
	return consistency.Position{AggregateType: "video", AggregateID: id.String(), Epoch: 1, Version: version}
}

func tokenOf(positions ...consistency.Position) string {
	merged, err := consistency.Merge(consistency.Token{Positions: positions})
	if err != nil {
		panic(err)
	}
	return merged.String()
}

// require is the requirement of a reader with the token of a video at version.
func require(t testing.TB, id uuid.UUID, version int64, wait time.Duration) consistency.Requirement {
	t.Helper()
	return requirementOn(t, consistency.Request{Token: token(id, version), Wait: wait})
}

func requirementOn(t testing.TB, q consistency.Request) consistency.Requirement {
	t.Helper()
	q.TokenField, q.ModeField = "token", "mode"
	d, err := VideoRequirement(q)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// refuse makes the table of videos refuse the title "refused", as a constraint of a fork does.
func (f *fixture) refuse(t testing.TB) {
	t.Helper()
	pgtest.Exec(t, f.admin, `ALTER TABLE catalog.video_projection ADD CONSTRAINT fork CHECK (title <> 'refused')`)
}

// get is the service's Get without the results that only some tests check.
func (f *fixture) get(ctx context.Context, id uuid.UUID, d consistency.Requirement) (Video, Source, error) {
	a, err := f.service.Get(ctx, everyone, id, d)
	return a.Video, a.Source, err
}

func createdEvent(id uuid.UUID, version int64, title string) eventing.Event {
	return event("VideoCreated", id, version, &eventsv1.Event{Payload: &eventsv1.Event_Created{Created: &eventsv1.VideoCreated{
		VideoId: id.String(), Version: version, UploaderId: uploader.String(),
		Title: title, Description: "about it", DurationSeconds: 60, PublishedAt: pb(-1),
	}}})
}

func updatedEvent(id uuid.UUID, version int64, change *eventsv1.VideoUpdated) eventing.Event {
	change.VideoId, change.Version = id.String(), version
	return event("VideoUpdated", id, version, &eventsv1.Event{Payload: &eventsv1.Event_Updated{Updated: change}})
}

func titled(id uuid.UUID, version int64, title string) eventing.Event {
	return updatedEvent(id, version, &eventsv1.VideoUpdated{Title: &title})
}

func deletedEvent(id uuid.UUID, version int64) eventing.Event {
	return event("VideoDeleted", id, version, &eventsv1.Event{Payload: &eventsv1.Event_Deleted{Deleted: &eventsv1.VideoDeleted{
		VideoId: id.String(), Version: version, DeletedAt: pb(version),
	}}})
}

func event(name string, id uuid.UUID, version int64, envelope *eventsv1.Event) eventing.Event {
	e := eventing.Event{
		ID: eventID(id.String(), version), AggregateType: "video", AggregateID: id.String(), Type: name,
		Version: version, SchemaVersion: 1, OccurredAt: at(version), Epoch: 1,
	}
	envelope.EventId, envelope.AggregateId, envelope.AggregateType = e.ID.String(), e.AggregateID, e.AggregateType
	envelope.Version, envelope.OccurredAt = version, pb(version)
	return withPayload(e, envelope)
}

// eventID is the id of the event of an aggregate's version. A second event of that
// version belongs to another history.
func eventID(aggregateID string, version int64) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, aggregateID, " ", version))
}

func withPayload(e eventing.Event, envelope *eventsv1.Event) eventing.Event {
	payload, err := proto.Marshal(envelope)
	if err != nil {
		panic(err)
	}
	e.Payload = payload
	return e
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// aliveAt is the Versioned of a row that was created at version 1 and has moved to version, graveAt
// that of a tombstone.
func aliveAt(version int64) Versioned {
	return Versioned{TenantID: eventing.DefaultTenant, Version: version, Epoch: 1, CreatedAt: atp(1), UpdatedAt: at(version)}
}

func graveAt(version int64) Versioned {
	return Versioned{TenantID: eventing.DefaultTenant, Version: version, Epoch: 1, UpdatedAt: at(version), DeletedAt: atp(version)}
}
