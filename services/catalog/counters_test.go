package catalog

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/tenant"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

// wantCounted fails the test unless the counters of these videos are the sums over the rows
// of engagements, and the database sees no difference either.
func (f *fixture) wantCounted(t testing.TB, videos ...uuid.UUID) {
	t.Helper()
	rows, _ := f.pool.Query(t.Context(), `SELECT `+engagementColumns+` FROM video_user_engagements_projection`)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[Engagement])
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[uuid.UUID]Counters{}, map[uuid.UUID]Counters{}
	for _, id := range videos { // also of a video without engagements
		want[id] = Counters{}
	}
	for _, e := range all {
		c := want[e.VideoID]
		if e.DeletedAt == nil {
			c.TotalWatchedSeconds += e.WatchedSeconds
			if e.Liked {
				c.LikeCount++
			}
			if e.Bookmarked {
				c.BookmarkCount++
			}
		}
		want[e.VideoID] = c
	}
	for _, id := range videos {
		if got[id], err = readCounters(t.Context(), f.pool, tenant.All(), id); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || f.drifting(t) != 0 {
		t.Fatalf("%d videos drift; counters (-want +got):\n%s", f.drifting(t), diff)
	}
}

func (f *fixture) drifting(t testing.TB) (n int) {
	t.Helper()
	return pgtest.Value[int](t, f.pool, `SELECT count(*) FROM video_counter_drift`)
}

// applyBatch applies events as a consumer does: in one transaction, by aggregate and
// version.
func (f *fixture) applyBatch(ctx context.Context, events ...eventing.Event) error {
	return pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
		for _, e := range events {
			if _, err := inbox.ApplyOne(ctx, tx, f.projector.Handler(), e); err != nil {
				return err
			}
		}
		return nil
	})
}

// likesOf is the engagements of a few users with a few videos.
func likesOf(users, videos int) (all []like, ids []uuid.UUID) {
	for range videos {
		ids = append(ids, newVideoID())
	}
	for range users {
		user := uuid.New()
		for _, id := range ids {
			all = append(all, like{user, id})
		}
	}
	return all, ids
}

// TestCountersFollowTheRows: whatever moves the rows of engagements, the counters are the
// sums over them. Events arrive late, twice, not at all and in another epoch; the owner
// repairs, and its answer is read for lists; redriven events and those of two consumers
// take the same way.
func TestCountersFollowTheRows(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.peer.asked = nil
	rnd := rand.New(rand.NewPCG(7, 1))
	likes, ids := likesOf(5, 3)
	random := func() eventing.Event {
		l, version := likes[rnd.IntN(len(likes))], 1+rnd.Int64N(9)
		e := l.put(version)
		if rnd.IntN(4) == 0 {
			e = l.deleted(version)
		}
		if rnd.IntN(10) == 0 {
			e.Epoch = 2
		}
		return e
	}
	for range 60 {
		switch l := likes[rnd.IntN(len(likes))]; rnd.IntN(4) {
		case 0: // the owner's state, for an event
			owned := l.owners(1 + rnd.Int64N(12))
			if rnd.IntN(3) == 0 {
				owned = l.ownersGrave(owned.GetVersion())
			}
			f.peer.hasLike(owned)
			if err := f.projector.Handler().Repair(t.Context(), l.put(1)); err != nil && !errors.Is(err, inbox.ErrLost) {
				t.Fatal(err)
			}
		case 1: // the owner's state, for a reader
			owned := l.owners(1 + rnd.Int64N(12))
			f.peer.hasLike(owned)
			_, err := f.likes(t, l.user, consistency.Request{Token: l.token(owned.GetVersion())})
			if err != nil {
				t.Fatal(err)
			}
		case 2: // one after the other
			e := random()
			if err := f.applyBatch(t.Context(), e, e, random()); err != nil {
				t.Fatal(err)
			}
		default: // two consumers at once, with the same engagements among others
			events, others := changesOf(t, random(), random(), random(), random()), changesOf(t, random(), random(), random(), random())
			var both sync.WaitGroup
			for _, changes := range [][]inbox.Change{events, others} {
				both.Go(func() {
					if err := f.applyChanges(t.Context(), changes); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
		}
		f.wantCounted(t, ids...)
	}
}

// changesOf is events as one batch has them: of each aggregate the last, by its id.
func changesOf(t testing.TB, events ...eventing.Event) (changes []inbox.Change) {
	t.Helper()
	seen := map[string]bool{}
	for _, e := range events {
		c, err := engagements{}.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if !seen[e.AggregateID] {
			seen[e.AggregateID] = true
			changes = append(changes, c)
		}
	}
	return changes
}

func (f *fixture) applyChanges(ctx context.Context, changes []inbox.Change) error {
	return pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
		_, err := inbox.ApplyChanges(ctx, tx, engagements{db: f.pool}, changes)
		return err
	})
}

// TestCountersDoNotDeadlock: two batches change the counters of the same videos, one by new
// engagements and the other by old ones, and the other way round.
func TestCountersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	old, ids := likesOf(1, 4)
	added, _ := likesOf(1, 4)
	for i, l := range old {
		added[i].video = ids[i]
		f.must(t, inbox.Applied, l.put(1), l.put(2))
	}
	// Each batch gets as far as its second video's counters.
	other := pgtest.Begin(t, f.admin)
	defer other.Rollback(context.WithoutCancel(t.Context()))
	const hold = `SELECT FROM catalog.video_counters WHERE video_id IN ($1, $2) FOR UPDATE`
	pgtest.Exec(t, other, hold, ids[1], ids[3])
	var both sync.WaitGroup
	for _, batch := range [][]inbox.Change{
		changesOf(t, old[0].put(3), old[1].put(3), added[2].put(1)),
		changesOf(t, old[2].put(3), old[3].put(3), added[0].put(1)),
	} {
		both.Go(func() {
			if err := f.applyChanges(t.Context(), batch); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, func() bool {
		var n int
		err := f.admin.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
		return err == nil && n == 2
	})
	if err := other.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	both.Wait()
	f.wantCounted(t, ids...)
}

// TestCountersOfOtherWriters: the writes of a release that does not know the counters, and
// those of an administrator, count as well. A tombstone counts nothing, whatever it says.
func TestCountersOfOtherWriters(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	const huge = 1<<63 - 1
	for i, step := range []struct {
		sql  string
		want Counters
	}{
		{`INSERT INTO catalog.video_user_engagements_projection (user_id, video_id, liked, watched_seconds, version, updated_at)
		  SELECT gen_random_uuid(), '{video}', true, 5, 1, now() FROM generate_series(1, 3)`, Counters{LikeCount: 3, TotalWatchedSeconds: 15}},
		{`UPDATE catalog.video_user_engagements_projection SET liked = false, bookmarked = true, watched_seconds = watched_seconds + 1`,
			Counters{BookmarkCount: 3, TotalWatchedSeconds: 18}},
		{`UPDATE catalog.video_user_engagements_projection SET deleted_at = now() WHERE user_id = (
		  SELECT max(user_id::text)::uuid FROM catalog.video_user_engagements_projection)`, Counters{BookmarkCount: 2, TotalWatchedSeconds: 12}},
		{`DELETE FROM catalog.video_user_engagements_projection WHERE deleted_at IS NOT NULL`, Counters{BookmarkCount: 2, TotalWatchedSeconds: 12}},
		{`UPDATE catalog.video_user_engagements_projection SET watched_seconds = 9223372036854775807`, Counters{BookmarkCount: 2, TotalWatchedSeconds: huge}},
		{`UPDATE catalog.video_user_engagements_projection SET watched_seconds = 4`, Counters{BookmarkCount: 2, TotalWatchedSeconds: 8}},
		{`DELETE FROM catalog.video_user_engagements_projection`, Counters{}},
	} {
		pgtest.Exec(t, f.admin, strings.ReplaceAll(step.sql, "{video}", l.video.String()))
		got, err := readCounters(t.Context(), f.pool, tenant.All(), l.video)
		if diff := cmp.Diff(step.want, got); err != nil || diff != "" || f.drifting(t) != 0 {
			t.Fatalf("step %d: %v, %d videos drift (-want +got):\n%s", i, err, f.drifting(t), diff)
		}
	}
}

// TestRecount: wrong counters are put right while consumers write, and neither waits for
// the other.
func TestRecount(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	likes, ids := likesOf(3, 4)
	for _, l := range likes {
		f.must(t, inbox.Applied, l.put(1))
	}
	_, err := f.admin.Exec(t.Context(), `
		UPDATE catalog.video_counters SET likes = likes + 7 WHERE video_id = $1`, ids[0])
	_, err2 := f.admin.Exec(t.Context(), `DELETE FROM catalog.video_counters WHERE video_id = $1`, ids[1])
	if err = errors.Join(err, err2); err != nil || f.drifting(t) != 2 {
		t.Fatalf("%v; %d videos drift, want 2", err, f.drifting(t))
	}
	tx := pgtest.Begin(t, f.admin)
	defer tx.Rollback(t.Context())
	var wrong int
	if err := tx.QueryRow(t.Context(), `SELECT catalog.recount_videos()`).Scan(&wrong); err != nil || wrong != 2 {
		t.Fatalf("recounted %d videos (%v), want 2", wrong, err)
	}
	for _, l := range likes { // with the recount's rows locked
		f.must(t, inbox.Applied, l.put(2), like{uuid.New(), l.video}.put(1))
	}
	pgtest.End(t, tx.Commit)
	f.wantCounted(t, ids...)
	if err := f.admin.QueryRow(t.Context(), `SELECT catalog.recount_videos()`).Scan(&wrong); err != nil || wrong != 0 {
		t.Errorf("recounted %d videos once more (%v), want none", wrong, err)
	}
	f.wantCounted(t, ids...)
}

// TestCountersAreShown with a video on both protocols, from either source and in lists;
// also those that came before the video. A deleted video shows none.
func TestCountersAreShown(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	f.peer.asked = nil
	conn := f.dial(t)
	client, path := catalogv1.NewCatalogServiceClient(conn), "GET /v1/videos/"+l.video.String()
	f.must(t, inbox.Applied, l.put(3), like{uuid.New(), l.video}.put(4))
	want := Counters{LikeCount: 1, BookmarkCount: 1, TotalWatchedSeconds: 7}
	wantReply := func(what string, video any) {
		t.Helper()
		got := [3]any{dig(video, "like_count"), dig(video, "bookmark_count"), dig(video, "total_watched_seconds")}
		if got != [3]any{1.0, 1.0, 7.0} {
			t.Errorf("%s over REST: %v, want %+v", what, got, want)
		}
	}
	wantMessage := func(what string, v *catalogv1.Video, err error) {
		t.Helper()
		got := Counters{v.GetLikeCount(), v.GetBookmarkCount(), v.GetTotalWatchedSeconds()}
		if err != nil || got != want {
			t.Errorf("%s over gRPC: %+v (%v), want %+v", what, got, err, want)
		}
	}
	f.peer.has(ownersVideo(l.video, 1, "a"))
	request := &catalogv1.GetVideoRequest{VideoId: l.video.String(), Consistency: catalogv1.Consistency_CONSISTENCY_FULLY_CONSISTENT}
	wantReply("from the owner", call(t, conn.Target(), path, "Consistency: fully-consistent").body)
	shown, err := client.GetVideo(t.Context(), request)
	wantMessage("from the owner", shown.GetVideo(), err)

	f.must(t, inbox.Applied, createdEvent(l.video, 1, "a"))
	wantReply("from the projection", call(t, conn.Target(), path).body)
	shown, err = client.GetVideo(t.Context(), &catalogv1.GetVideoRequest{VideoId: l.video.String()})
	wantMessage("from the projection", shown.GetVideo(), err)
	for what, token := range map[string]string{"in a list": "", "in a list with a token": token(l.video, 1)} {
		headers := []string{}
		if token != "" {
			headers = append(headers, "Consistency-Token: "+token)
		}
		videos, _ := call(t, conn.Target(), "GET /v1/videos", headers...).body["videos"].([]any)
		list, err := client.ListVideos(t.Context(), &catalogv1.ListVideosRequest{AtLeastAsFresh: token})
		if err != nil || len(videos) != 1 || len(list.GetVideos()) != 1 {
			t.Fatalf("%s: %v, %v, %v", what, err, videos, list)
		}
		wantReply(what, videos[0])
		wantMessage(what, list.GetVideos()[0], nil)
	}

	pgtest.Exec(t, f.admin, `REVOKE SELECT ON catalog.video_counters FROM catalog_service, catalog_api`)
	if _, err = client.GetVideo(t.Context(), request); status.Code(err) != codes.Internal {
		t.Errorf("without the counters: %v", err)
	}
	pgtest.Exec(t, f.admin, `GRANT SELECT ON catalog.video_counters TO catalog_service, catalog_api`)
	f.must(t, inbox.Applied, deletedEvent(l.video, 2))
	if gone := call(t, conn.Target(), path); gone.status != 410 || gone.body["like_count"] != nil {
		t.Errorf("deleted: %d %v", gone.status, gone.body)
	}
	f.must(t, inbox.Applied, l.deleted(4))
	f.wantCounted(t, l.video)
}
