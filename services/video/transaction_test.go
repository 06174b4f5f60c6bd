package video

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/txn"
	"example.com/lockstep/services/video/aggregate"
)

func TestAllViolationsAtOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	_, err := a.service.Create(t.Context(), Video{Description: "\x00", DurationSeconds: -1}, aggregate.WriteOptions{Caller: everyone, Keys: []string{"a b"}}, nil)
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

// Violations come in one order: of the headers and the path, of the protocol, of the
// rules, of the idempotency key. A field has the first only.
func TestTheOrderOfViolations(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, tc := range []struct{ method, path, body, detail string }{
		{"POST", "/v1/videos", `{"published_at": "x", "title": null, "description": "\u0000", "duration_seconds": -1, "uploader_id": "y"}`,
			`If-Match: must be versions in quotes, such as "3", or *; published_at: must be a time as in RFC 3339; ` +
				`title: must not be null; uploader_id: must be a UUID; description: must not contain control characters; ` +
				`duration_seconds: must lie between 0 and 315360000; Idempotency-Key: must be one value of 1 to 255 visible ASCII characters`},
		{"PATCH", "/v1/videos/x?q=1", `{"title": "a\nb", "duration_seconds": null, "published_at": "x", "uploader_id": "y", "description": "\u0000"}`,
			`If-Match: must be versions in quotes, such as "3", or *; q: is not a known parameter; uploader_id: never changes; ` +
				`published_at: must be a time as in RFC 3339; duration_seconds: must not be null; video_id: must be a UUID; ` +
				`description: must not contain control characters; title: must not contain control characters; ` +
				`Idempotency-Key: must be one value of 1 to 255 visible ASCII characters`},
		{"DELETE", "/v1/videos/x?reason=z", `{"reason": "a\nb"}`,
			`If-Match: must be versions in quotes, such as "3", or *; reason: must not be given twice; video_id: must be a UUID; ` +
				`Idempotency-Key: must be one value of 1 to 255 visible ASCII characters`},
	} {
		r := a.call(tc.method, tc.path, tc.body, "If-Match", "x", "Idempotency-Key", "a b")
		if diff := cmp.Diff(tc.detail, r.field("detail")); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tc.method, tc.path, diff)
		}
	}
}

// trips notes each round trip of a connection, and whether it may take for ever.
type trips struct {
	mu    sync.Mutex
	names []string
}

func (r *trips) add(ctx context.Context, _ *pgx.Conn, trip pgtest.Trip) {
	name := trip[0].SQL
	if len(trip) > 1 {
		name = "batch"
	}
	if trip.Contains("FROM videos WHERE video_id = $1 FOR UPDATE") && trip.Contains("UPDATE videos") {
		name += " that locks the row again"
	}
	if _, limited := ctx.Deadline(); !limited {
		name += " without a deadline"
	}
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

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	cfg := pgtest.Settings(t, db.VideoURL)
	var seen trips
	cfg.ConnConfig.Tracer = &pgtest.Tracer{Before: seen.add}
	pool := pgtest.Open(t, cfg)
	s := newServices(pool, nil)
	with := func(key string) aggregate.WriteOptions {
		return aggregate.WriteOptions{Caller: everyone, Keys: []string{key}}
	}

	// The first write of a process reads the epoch, too. The first write of each kind on a connection sends
	// BEGIN alone.
	first, err := s.videos.Create(t.Context(), Video{UploaderID: uuid.New(), Title: "t"}, with("first"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one gets the first one's answer
		if _, err := s.videos.Update(t.Context(), first.Value.ID, []string{"title"}, Video{Title: "u"}, with("first"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.videos.Delete(t.Context(), first.Value.ID, "", with("first"), nil); err != nil {
		t.Fatal(err)
	}
	seen.take()
	created, err := s.videos.Create(t.Context(), Video{UploaderID: uuid.New(), Title: "t"}, with("create"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"batch"}, seen.take()); diff != "" {
		t.Errorf("create (-want +got):\n%s", diff)
	}
	id := created.Value.ID
	if _, err := s.videos.Update(t.Context(), id, []string{"title"}, Video{Title: "u"}, with("update"), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"batch", "batch"}, seen.take()); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
	if r, err := s.videos.Update(t.Context(), id, []string{"title"}, Video{Title: "u"}, with("update"), nil); err != nil || !r.Replayed {
		t.Fatalf("%+v, %v", r, err)
	}
	if diff := cmp.Diff([]string{
		"batch", "rollback", "SELECT (SELECT epoch FROM outbox_epochs ORDER BY epoch DESC LIMIT 1)", "batch",
	}, seen.take()); diff != "" {
		t.Errorf("the same update again (-want +got):\n%s", diff)
	}
	engagementTrips(t, s, id, &seen)
	if _, err := s.videos.Delete(t.Context(), id, "", with("delete"), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"batch", "batch"}, seen.take()); diff != "" {
		t.Errorf("delete (-want +got):\n%s", diff)
	}
}

// The queue of a process keeps its writes of a row apart. Those of several instances need the row's lock.
func TestAWriteBehindAnotherInstances(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	var got aggregate.Result[Video]
	a.behind(func() (err error) {
		got, err = a.service.Update(t.Context(), v.ID, []string{"title"}, Video{Title: "mine"}, aggregate.WriteOptions{Caller: everyone}, nil)
		return err
	}, `WITH theirs AS (UPDATE video.videos SET version = 2, description = 'theirs' WHERE video_id = $1)
		INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		VALUES (gen_random_uuid(), 'video', $1::text, 'VideoUpdated', 2, '')`, v.ID)
	if got.Value.Version != 3 || got.Value.Title != "mine" || got.Value.Description != "theirs" {
		t.Errorf("%+v, want version 3 with the description of version 2", got.Value)
	}
}

func TestSecondEventForAVersionIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	a.exec(`INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		VALUES (gen_random_uuid(), 'video', $1, 'VideoUpdated', 2, '')`, v.ID.String())
	_, err := a.service.Update(t.Context(), v.ID, []string{"title"}, Video{Title: "y"}, aggregate.WriteOptions{Caller: everyone}, nil)
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
	name := pgtest.Value[string](t, a.admin, `SELECT current_database()`)
	a.exec(`ALTER ROLE video_service IN DATABASE ` + pgx.Identifier{name}.Sanitize() + ` SET default_transaction_isolation = 'repeatable read'`)
	a.db.Reset()
	v := a.create()
	// Two instances are needed: within one instance only one request at a time works on
	// the row.
	instances := []services{newServices(a.db, nil), newServices(a.db, nil)}
	// On a busy machine the writers before one may take longer than it waits.
	patiently := func(write func() error) {
		err := write()
		for errors.Is(err, txn.ErrLocked) || errors.Is(err, txn.ErrBusy) {
			err = write()
		}
		if err != nil {
			t.Error(err)
		}
	}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for n := range 10 {
				patiently(func() error { return instances[w%2].putEngagement(t.Context(), v.ID, int64(100*w+n)) })
				to := Video{DurationSeconds: int64(1000 + 100*w + n)}
				patiently(func() error {
					_, err := instances[w%2].videos.Update(t.Context(), v.ID, []string{"duration_seconds"}, to, aggregate.WriteOptions{Caller: everyone}, nil)
					return err
				})
			}
		})
	}
	writers.Wait()
}

// A write has committed, and its answer is lost. The service does not know that the event is
// there, and wakes the relay all the same.
func TestALostCommitWakesTheRelay(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	pool, armed := db.PoolLosingCommits(t, db.VideoURL, func() {})
	woken := make(wakeups, 10)
	videos := newServices(pool, woken).videos
	draft := Video{UploaderID: uuid.New(), Title: "Pompeii"}
	armed.Store(true)
	_, err := videos.Create(t.Context(), draft, aggregate.WriteOptions{Caller: everyone}, nil)
	var events int
	if scanned := pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox`).Scan(&events); scanned != nil {
		t.Fatal(scanned)
	}
	if err == nil || events != 1 || len(woken) != 1 {
		t.Errorf("%v; %d events, %d wake-ups", err, events, len(woken))
	}
}

// The server ends the session behind COMMIT and before the end of the batch. So the error is the database's own, although the
// write has committed.
func TestASessionThatEndsBehindCommitWakesTheRelay(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	admin := db.Pool(t, db.Admin)
	cfg := pgtest.Settings(t, db.VideoURL)
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // so that the text of COMMIT is in the batch
	dial, ended := cfg.ConnConfig.DialFunc, false
	end := func() {
		deadline := time.Now().Add(patience)
		for n := 0; n == 0 && time.Now().Before(deadline); {
			if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM video.outbox`).Scan(&n); err != nil {
				t.Error(err)
				return
			}
		}
		if err := admin.QueryRow(t.Context(), `
			SELECT bool_and(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
			 WHERE datname = current_database() AND usename = 'video_service'`).Scan(&ended); err != nil {
			t.Error(err)
		}
	}
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return behindCommit{conn, end}, err
	}
	pool := pgtest.Open(t, cfg)
	woken := make(wakeups, 10)
	videos := newServices(pool, woken).videos
	_, err := videos.Create(t.Context(), Video{UploaderID: uuid.New(), Title: "Pompeii"}, aggregate.WriteOptions{Caller: everyone}, nil)
	if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "57P01" || !ended || len(woken) != 1 {
		t.Errorf("%v; ended %t, %d wake-ups", err, ended, len(woken))
	}
}

// behindCommit calls end before it sends the message behind COMMIT.
type behindCommit struct {
	net.Conn

	end func()
}

func (c behindCommit) Write(p []byte) (int, error) {
	const sync = "S\x00\x00\x00\x04"
	if !bytes.Contains(p, []byte("commit\x00")) || !bytes.HasSuffix(p, []byte(sync)) {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:len(p)-len(sync)])
	if err != nil {
		return n, err
	}
	c.end()
	_, _ = c.Conn.Write([]byte(sync)) // the session has ended, and its last words are to be read
	return len(p), nil
}
