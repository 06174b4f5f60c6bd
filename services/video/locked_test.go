package video

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/txn"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/aggregate"
)

// locked holds the row of a new video in an administrator's transaction, until unlock
// is called or the test ends.
func (a *api) locked() (v Video, unlock func()) {
	a.Helper()
	v = a.create()
	tx := pgtest.Begin(a, a.admin)
	pgtest.Exec(a, tx, `SELECT FROM video.videos WHERE video_id = $1 FOR UPDATE`, v.ID)
	unlock = sync.OnceFunc(func() {
		if err := tx.Rollback(a.Context()); err != nil {
			a.Error(err)
		}
	})
	return v, unlock
}

// patient is call for one of several writers of a row. On a busy machine those before it may
// take longer than a request waits: the answer is that nothing was changed, and it comes again.
func (a *api) patient(method, path string, body any, headers ...string) (r reply) {
	a.Helper()
	pgtest.Until(a, "the row is free", func() bool {
		r = a.call(method, path, body, headers...)
		return r.field("reason") != "LOCKED" && r.field("reason") != "BUSY"
	})
	return r
}

// published reports whether the broker has an event of v.
func (s serving) published(v Video) bool {
	for _, m := range s.broker.Messages() {
		if m.OrderingKey == v.ID.String() {
			return true
		}
	}
	return false
}

// With any number of requests that wait for one row, the relay, readiness and every
// other request have connections, and the waiting requests are answered with a Retry-After.
func TestALockedVideoHoldsUpNoOther(t *testing.T) {
	s := newServing(t)
	v, unlock := s.locked()
	defer unlock()
	const clients = 50
	var answered [clients]atomic.Int64
	stop := make(chan struct{})
	var patching sync.WaitGroup
	for c := range clients {
		patching.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				r := s.call("PATCH", path(v), map[string]any{"duration_seconds": 1000 + c})
				if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || r.field("reason") != "LOCKED" {
					t.Errorf("a request for the locked row: %d %s, Retry-After %q", r.Status, r.Raw, r.Header.Get("Retry-After"))
				}
				answered[c].Add(1)
			}
		})
	}
	done := sync.OnceFunc(func() { close(stop); patching.Wait() })
	defer done()
	pgtest.Until(s, "every client has had an answer", func() bool {
		for c := range answered {
			if answered[c].Load() == 0 {
				return false
			}
		}
		return true
	})
	for range 10 {
		other := s.create()
		pgtest.Until(s, "the event of another video leaves", func() bool { return s.published(other) })
		for _, r := range []reply{
			s.call("GET", "/readyz", nil), s.call("GET", path(v), nil), s.call("GET", "/v1/videos", nil),
			s.call("PATCH", path(other), `{"title": "x"}`), s.call("DELETE", path(other), nil),
		} {
			if r.Status != http.StatusOK {
				t.Errorf("next to the locked row: %d %s", r.Status, r.Raw)
			}
		}
	}
	s.overGRPC(v)
	done()
	unlock()
	pgtest.Until(s, "the row can be written again", func() bool {
		return s.call("PATCH", path(v), `{"title": "free"}`).Status == http.StatusOK
	})
	if os.Getenv("LOCKSTEP_FULL") != "" {
		for _, perSecond := range []int{0, 1, 10, 100} {
			s.besideALockedVideo(perSecond)
		}
	}
}

// The lock of a row delays only the row's tenant. A caller of another tenant, who can know the id of the row,
// learns at once that there is none.
func TestALockHoldsUpNoOtherTenant(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, unlock := a.locked()
	defer unlock()
	update := func(tenant string) error {
		caller := auth.Principal{Kind: auth.Everyone, Tenant: tenant}
		_, err := a.service.Update(t.Context(), v.ID, []string{"title"}, Video{Title: "x"}, by(caller), nil)
		return err
	}
	const writers = 20 // more than may wait behind a lock
	var refused [writers]atomic.Int64
	var ended atomic.Bool
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for !ended.Load() {
				switch err := update(eventing.DefaultTenant); {
				case errors.Is(err, txn.ErrLocked):
					refused[w].Add(1)
				case !errors.Is(err, txn.ErrBusy): // which a starved machine gives, too
					t.Errorf("a write of the locked row: %v", err)
				}
			}
		})
	}
	pgtest.Until(a, "every writer was refused", func() bool {
		for w := range refused {
			if refused[w].Load() == 0 {
				return false
			}
		}
		return true
	})
	if got := reasonOf(update("other")); got != "VIDEO_NOT_FOUND" {
		t.Errorf("a caller of another tenant gets %s", got)
	}
	ended.Store(true)
	writing.Wait()
}

// A locked table delays only the writes to that table, and each of them is told so. VACUUM FULL and
// CREATE INDEX lock a table.
func TestALockedTableHoldsUpNoOther(t *testing.T) {
	s := newServing(t)
	v := s.create()
	lock := func(table, mode string) (unlock func()) {
		tx := pgtest.Begin(t, s.admin)
		pgtest.Exec(t, tx, `LOCK TABLE `+table+` IN `+mode+` MODE`)
		return func() {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	for _, c := range []struct{ table, mode string }{{"video.outbox", "SHARE"}, {"video.videos", "ACCESS EXCLUSIVE"}} {
		unlock := lock(c.table, c.mode)
		var writing sync.WaitGroup
		for range 6 {
			writing.Go(func() {
				for _, headers := range [][]string{nil, {"Idempotency-Key", uuid.NewString()}} {
					r := s.call("POST", "/v1/videos", draft(nil), headers...)
					if r.Status != http.StatusServiceUnavailable || r.field("reason") != "LOCKED" || r.Header.Get("Retry-After") == "" {
						t.Errorf("%s in %s mode, %q: %d %s", c.table, c.mode, headers, r.Status, r.Raw)
					}
				}
			})
		}
		writing.Wait()
		unlock()
		pgtest.Until(s, "videos can be written again", func() bool { return s.call("POST", "/v1/videos", draft(nil)).Status == http.StatusCreated })
	}
	unlock := lock("video.videos", "SHARE") // which a read does not need
	defer unlock()
	if r := s.call("GET", path(v), nil); r.Status != http.StatusOK {
		t.Errorf("a read: %d %s", r.Status, r.Raw)
	}
}

// A database in which writes take long holds no lock that an operator could find, so the writes that wait
// for them say that it is busy.
func TestSlowWritesAreNoLock(t *testing.T) {
	s := newServing(t)
	s.exec(`CREATE TABLE video.slow AS SELECT true`)
	s.exec(`CREATE FUNCTION video.slow() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			WHILE EXISTS (SELECT FROM video.slow) LOOP PERFORM pg_sleep(0.01); END LOOP;
			RETURN new;
		END $$`)
	s.exec(`CREATE TRIGGER slow BEFORE UPDATE ON video.videos FOR EACH ROW WHEN (new.title = 'slow') EXECUTE FUNCTION video.slow()`)
	const turns = 3 // the connections for requests but one
	var slow sync.WaitGroup
	var videos [turns]Video
	for i := range videos {
		videos[i] = s.create()
	}
	other := s.create()
	for _, v := range videos {
		slow.Go(func() {
			if r := s.call("PATCH", path(v), `{"title": "slow"}`); r.Status != http.StatusOK {
				t.Errorf("a slow write: %d %s", r.Status, r.Raw)
			}
		})
	}
	pgtest.Until(s, "every turn is taken", func() (all bool) {
		err := s.admin.QueryRow(t.Context(), `
			SELECT count(*) = $1 FROM pg_stat_activity
			 WHERE datname = current_database() AND usename = 'video_service' AND wait_event = 'PgSleep'`, turns).Scan(&all)
		return err == nil && all
	})
	var waiting sync.WaitGroup
	for _, v := range []Video{videos[0], other} {
		waiting.Go(func() {
			r := s.call("PATCH", path(v), `{"title": "next"}`)
			if r.Status != http.StatusServiceUnavailable || r.field("reason") != "BUSY" || r.Header.Get("Retry-After") == "" {
				t.Errorf("behind the slow writes: %d %s, Retry-After %q", r.Status, r.Raw, r.Header.Get("Retry-After"))
			}
		})
	}
	waiting.Go(func() { s.overGRPC(other) })
	waiting.Wait()
	if r := s.call("GET", path(other), nil); r.Status != http.StatusOK || r.field("title") == "next" {
		t.Errorf("a read: %d %s, want the title as it was", r.Status, r.Raw)
	}
	s.exec(`DELETE FROM video.slow`)
	slow.Wait()
}

// overGRPC expects the same answer for a write of v over gRPC.
func (s serving) overGRPC(v Video) {
	s.Helper()
	conn, err := grpc.NewClient(s.url[len("http://"):], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	_, err = videov1.NewVideoServiceClient(conn).UpdateVideo(s.Context(), &videov1.UpdateVideoRequest{
		Video: &videov1.Video{VideoId: v.ID.String(), Title: "y"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}},
	})
	retry := false
	for _, detail := range status.Convert(err).Details() {
		info, ok := detail.(*errdetails.RetryInfo)
		retry = retry || ok && info.GetRetryDelay().AsDuration() > 0
	}
	if status.Code(err) != codes.Unavailable || !retry {
		s.Errorf("over gRPC: %v, RetryInfo %t", err, retry)
	}
}

// besideALockedVideo logs the delay of other requests while PATCHes of a locked video
// arrive at a rate.
func (s serving) besideALockedVideo(perSecond int) {
	s.Helper()
	const lasts, every = 8 * time.Second, 20 * time.Millisecond
	v, unlock := s.locked()
	other := s.create()
	var mu sync.Mutex
	took, statuses := map[string][]time.Duration{}, map[string]int{}
	timed := func(what string, do func() int) {
		began := time.Now()
		answer := do()
		mu.Lock()
		defer mu.Unlock()
		took[what] = append(took[what], time.Since(began))
		statuses[fmt.Sprintf("%s %d", what, answer)]++
	}
	var running sync.WaitGroup
	repeat := func(every time.Duration, what string, do func() int) {
		running.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for end := time.Now().Add(lasts); time.Now().Before(end); <-tick.C {
				running.Go(func() { timed(what, do) })
			}
		})
	}
	if perSecond > 0 {
		repeat(time.Second/time.Duration(perSecond), "locked", func() int {
			return s.call("PATCH", path(v), map[string]any{"duration_seconds": time.Now().UnixNano() % 1e6}).Status
		})
	}
	repeat(every, "read", func() int { return s.call("GET", path(other), nil).Status })
	repeat(5*every, "write", func() int { return s.call("POST", "/v1/videos", draft(nil)).Status })
	repeat(25*every, "readyz", func() int { return s.call("GET", "/readyz", nil).Status })
	repeat(25*every, "event", func() int {
		made := s.create()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-time.After(time.Millisecond) {
			if s.published(made) {
				return 1
			}
		}
		return 0
	})
	running.Wait()
	unlock()
	for what, all := range took {
		slices.Sort(all)
		s.Logf("%3d/s %-7s n %4d  p50 %8s  p99 %8s  max %8s", perSecond, what, len(all),
			all[len(all)/2].Round(100*time.Microsecond), all[(len(all)-1)*99/100].Round(100*time.Microsecond), all[len(all)-1].Round(100*time.Microsecond))
	}
	s.Logf("%3d/s answers %v", perSecond, statuses)
}

// A connection that is lost without an error, as in a failover, does not hold a read of one video up for as long as its request may last.
func TestALostConnectionEndsARead(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	db, freeze := pgtest.Freezable(t, a.db)
	request, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	read := func() error {
		_, _, err := selectVideo(request, db, aggregate.Scope(everyone), uuid.New())
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	freeze()
	if err := read(); !errors.Is(err, bounded.ErrLimit) || request.Err() != nil {
		t.Errorf("%v, want %v", err, bounded.ErrLimit)
	}
}
