package video

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/problem"
)

func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	_, err := a.service.Create(t.Context(), Video{Description: "\x00", DurationSeconds: -1}, Write{Keys: []string{"a b"}})
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		t.Fatalf("got %v, want a problem", err)
	}
	var fields []string
	for _, f := range p.Fields {
		fields = append(fields, f.Field)
	}
	slices.Sort(fields)
	if diff := cmp.Diff([]string{"Idempotency-Key", "description", "duration_seconds", "title", "uploader_id"}, fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// trips notes each round trip of a connection.
type trips struct {
	mu    sync.Mutex
	names []string
}

func (r *trips) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
}

func (r *trips) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.names
	r.names = nil
	return names
}

func (r *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	r.add(q.SQL)
	return ctx
}
func (r *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (r *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.add("batch")
	return ctx
}
func (r *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	cfg, err := pgxpool.ParseConfig(db.VideoURL)
	if err != nil {
		t.Fatal(err)
	}
	var seen trips
	cfg.ConnConfig.Tracer = &seen
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := NewService(pool, func() {})
	with := func(key string) Write { return Write{Keys: []string{key}} }

	created, err := s.Create(t.Context(), Video{UploaderID: uuid.New(), Title: "t"}, with("create"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"begin isolation level read committed", "batch", "commit"}, seen.take()); diff != "" {
		t.Errorf("create (-want +got):\n%s", diff)
	}
	id := created.Is.ID
	if _, err := s.Update(t.Context(), id, []string{"title"}, Video{Title: "u"}, with("update")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"begin isolation level read committed", "batch", "batch", "commit"}, seen.take()); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
	like := Engagement{UserID: uuid.New(), VideoID: id, Liked: true}
	for name, write := range map[string]func(Write) (Answer[Engagement], error){
		"put":    func(w Write) (Answer[Engagement], error) { return s.PutEngagement(t.Context(), like, w) },
		"delete": func(w Write) (Answer[Engagement], error) { return s.DeleteEngagement(t.Context(), like.UserID, id, w) },
	} {
		if _, err := s.PutEngagement(t.Context(), Engagement{UserID: like.UserID, VideoID: id}, Write{}); err != nil {
			t.Fatal(err)
		}
		seen.take()
		if _, err := write(with(name)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"begin isolation level read committed", "batch", "batch", "commit"}, seen.take()); diff != "" {
			t.Errorf("%s of an engagement (-want +got):\n%s", name, diff)
		}
	}
	if _, err := s.Delete(t.Context(), id, "", with("delete")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"begin isolation level read committed", "batch", "batch", "commit"}, seen.take()); diff != "" {
		t.Errorf("delete (-want +got):\n%s", diff)
	}
}

func TestSecondEventForAVersionIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	a.exec(`INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		VALUES (gen_random_uuid(), 'video', $1, 'VideoUpdated', 2, '')`, v.ID.String())
	_, err := a.service.Update(t.Context(), v.ID, []string{"title"}, Video{Title: "y"}, Write{})
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "23505" {
		t.Errorf("got %v, want a unique violation", err)
	}
}

// A database may have any default for transactions: the services are written for read
// committed, where a transaction that has waited for a row sees the commits of that
// row's writers.
func TestIsolationIsPinned(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	var name string
	if err := a.admin.QueryRow(t.Context(), `SELECT current_database()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	a.exec(`ALTER ROLE video_service IN DATABASE ` + pgx.Identifier{name}.Sanitize() + ` SET default_transaction_isolation = 'repeatable read'`)
	a.db.Reset()
	v, user := a.create(), uuid.New()
	// Two instances are needed: within one instance only one request at a time works on
	// the row.
	instances := []*Service{a.service, NewService(a.db, func() {})}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for n := range 10 {
				like := Engagement{UserID: user, VideoID: v.ID, WatchedSeconds: int64(100*w + n)}
				if _, err := instances[w%2].PutEngagement(t.Context(), like, Write{}); err != nil {
					t.Error(err)
				}
				to := Video{DurationSeconds: int64(1000 + 100*w + n)}
				if _, err := instances[w%2].Update(t.Context(), v.ID, []string{"duration_seconds"}, to, Write{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}
