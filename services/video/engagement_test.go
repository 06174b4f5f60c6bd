package video

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/consistency"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/aggregate"
	"example.com/lockstep/services/video/engagement"
)

// engagement reads the answer to a put.
func (r reply) engagement(t testing.TB) (e engagement.Engagement) {
	t.Helper()
	if err := json.Unmarshal(r.Raw, &e); err != nil || r.Status != http.StatusOK {
		t.Fatalf("%d %s: %v", r.Status, r.Raw, err)
	}
	return e
}

// TestLifeOfAnEngagementAsEvents puts, changes, deletes and puts again.
func TestLifeOfAnEngagementAsEvents(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, user := a.create(), uuid.New()
	target, id := engaged(user, v), user.String()+":"+v.ID.String()
	<-a.wakeups // by the video
	first := a.call("PUT", target, `{"liked": true, "watched_seconds": 7}`)
	again := a.call("PUT", target, `{"liked": true, "bookmarked": false, "watched_seconds": 7}`)
	second := a.call("PUT", target, `{"bookmarked": true}`)
	third := a.call("DELETE", target, nil)
	gone := a.call("DELETE", target, nil)
	fourth := a.call("PUT", target, `{"watched_seconds": 1}`)

	one, two, four := first.engagement(t), second.engagement(t), fourth.engagement(t)
	if diff := cmp.Diff(first.Body, again.Body); diff != "" {
		t.Errorf("the same once more (-first +again):\n%s", diff)
	}
	if gone.Status != http.StatusGone || gone.field("reason") != "ENGAGEMENT_DELETED" || gone.field("version") != "3" ||
		gone.field("deleted_at") != third.field("deleted_at") || third.field("version") != "3" {
		t.Errorf("deleted: %d %s, then %d %s", third.Status, third.Raw, gone.Status, gone.Raw)
	}
	if !one.CreatedAt.Equal(one.UpdatedAt) || !two.CreatedAt.Equal(one.CreatedAt) || !four.CreatedAt.Equal(four.UpdatedAt) ||
		!one.UpdatedAt.Before(two.UpdatedAt) || !two.UpdatedAt.Before(four.UpdatedAt) {
		t.Errorf("times of %+v, %+v, %+v", one, two, four)
	}
	deletedAt, err := time.Parse(time.RFC3339Nano, third.field("deleted_at"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(e engagement.Engagement) *engagementv1.Event {
		return &engagementv1.Event{
			EventType: engagementv1.EventType_EVENT_TYPE_ENGAGEMENT_PUT, Version: e.Version, OccurredAt: timestamppb.New(e.UpdatedAt),
			Payload: &engagementv1.Event_Put{Put: &engagementv1.EngagementPut{
				UserId: user.String(), VideoId: v.ID.String(), Version: e.Version, Liked: e.Liked, Bookmarked: e.Bookmarked,
				WatchedSeconds: e.WatchedSeconds, CreatedAt: timestamppb.New(e.CreatedAt), OccurredAt: timestamppb.New(e.UpdatedAt),
			}},
		}
	}
	want := []*engagementv1.Event{put(one), put(two), {
		EventType: engagementv1.EventType_EVENT_TYPE_ENGAGEMENT_DELETED, Version: 3, OccurredAt: timestamppb.New(deletedAt),
		Payload: &engagementv1.Event_Deleted{Deleted: &engagementv1.EngagementDeleted{
			UserId: user.String(), VideoId: v.ID.String(), Version: 3,
			DeletedAt: timestamppb.New(deletedAt), OccurredAt: timestamppb.New(deletedAt),
		}},
	}, put(four)}
	events := a.outbox(id)
	if len(events) != len(want) || len(a.wakeups) != len(want) {
		t.Fatalf("%d events, %d wake-ups; want %d", len(events), len(a.wakeups), len(want))
	}
	for i, e := range events {
		want[i].EventId, want[i].AggregateId, want[i].AggregateType = e.ID.String(), id, "engagement"
		var got engagementv1.Event
		if err := proto.Unmarshal(e.Payload, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[i], &got, protocmp.Transform()); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i+1, diff)
		}
		name := []string{"EngagementPut", "EngagementPut", "EngagementDeleted", "EngagementPut"}[i]
		if e.Type != name || e.Aggregate != "engagement" || e.AggregateID != id || e.Schema != 1 || e.Epoch != 1 {
			t.Errorf("event %d is addressed as %+v, want %s", i+1, e, name)
		}
	}
	if diff := cmp.Diff(rows{Videos: 1, Engagements: 1, Outbox: 5}, a.rows()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestEngagementAnswers(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, user := a.create(), uuid.New()
	for i, r := range []reply{a.call("PUT", engaged(user, v), `{}`), a.call("DELETE", engaged(user, v), nil)} {
		token, err := consistency.Parse(r.field("consistency_token"))
		if err != nil {
			t.Fatal(err)
		}
		version := int64(i + 1)
		want := []consistency.Position{{AggregateType: "engagement", AggregateID: user.String() + ":" + v.ID.String(), Epoch: 1, Version: version}}
		if diff := cmp.Diff(want, token.Positions); diff != "" {
			t.Errorf("token (-want +got):\n%s", diff)
		}
		if r.Status != http.StatusOK || r.Header.Get("Consistency-Token") != r.field("consistency_token") ||
			r.Header.Get("ETag") != strconv.Quote(strconv.Itoa(i+1)) || r.field("user_id") != user.String() || r.field("video_id") != v.ID.String() {
			t.Errorf("%d %v %s", r.Status, r.Header, r.Raw)
		}
	}
}

// An unknown or deleted video takes no engagement. An existing engagement of a deleted
// video can still be taken back.
func TestEngagementNeedsItsVideo(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, user := a.create(), uuid.New()
	a.call("PUT", engaged(user, v), `{"liked": true}`).engagement(t)
	a.call("DELETE", path(v), nil)
	before := a.rows()
	for _, tc := range []struct {
		path   string
		status int
		reason string
	}{
		{engaged(user, Video{ID: aggregate.NewID()}), 404, "VIDEO_NOT_FOUND"},
		{engaged(user, v), 410, "VIDEO_DELETED"},
		{engaged(uuid.New(), v), 410, "VIDEO_DELETED"},
	} {
		if r := a.call("PUT", tc.path, `{"liked": true}`, "Idempotency-Key", "k"); r.Status != tc.status || r.field("reason") != tc.reason {
			t.Errorf("put: %d %s, want %d %s", r.Status, r.Raw, tc.status, tc.reason)
		}
	}
	if after := a.rows(); after != before {
		t.Errorf("rows %+v became %+v", before, after)
	}
	if r := a.call("DELETE", engaged(user, v), nil); r.Status != http.StatusOK || r.field("version") != "2" {
		t.Errorf("delete: %d %s", r.Status, r.Raw)
	}
}

// First writers of one engagement find no row to lock.
// Two instances may be the first writers of one engagement. There is no row yet whose lock keeps them apart.
func TestAnEngagementBehindAnotherInstances(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, user := a.create(), uuid.New()
	var got aggregate.Result[engagement.Engagement]
	a.behind(func() (err error) {
		mine := engagement.Engagement{UserID: user, VideoID: v.ID, Liked: true}
		got, err = a.engagements.Put(t.Context(), mine, aggregate.WriteOptions{Caller: everyone}, nil)
		return err
	}, `WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtextextended(concat($1::uuid, ':', $2::uuid), 0)))
		INSERT INTO video.engagements (user_id, video_id, version, liked, bookmarked, watched_seconds, created_at, updated_at)
		SELECT $1, $2, 1, false, true, 7, now(), now() FROM locked`, user, v.ID)
	if got.Value.Version != 2 {
		t.Errorf("%+v, want version 2", got.Value)
	}
}

// The lock of an engagement's name delays only its tenant, because every tenant can have that engagement.
func TestALockOfAnEngagementHoldsUpNoOtherTenant(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	theirs, user := auth.Principal{Kind: auth.Everyone, Tenant: "other"}, uuid.New()
	v, err := a.service.Create(t.Context(), Video{UploaderID: user, Title: "t"}, by(theirs), nil)
	if err != nil {
		t.Fatal(err)
	}
	tx := pgtest.Begin(t, a.admin)
	defer func() { _ = tx.Rollback(t.Context()) }()
	name := user.String() + ":" + v.Value.ID.String()
	pgtest.Exec(t, tx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, name)
	like := engagement.Engagement{UserID: user, VideoID: v.Value.ID, Liked: true}
	if got, err := a.engagements.Put(t.Context(), like, by(theirs), nil); err != nil || got.Value.Version != 1 {
		t.Errorf("an engagement of another tenant: %+v, %v", got.Value, err)
	}
}

func TestConcurrentEngagementsMakeContiguousVersions(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, user := a.create(), uuid.New()
	const writers = 16
	var versions []int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			r := a.patient("PUT", engaged(user, v), map[string]any{"watched_seconds": i + 1})
			if i%4 == 3 && r.Status == http.StatusOK {
				if d := a.patient("DELETE", engaged(user, v), nil); d.Status == http.StatusOK {
					r.Raw = d.Raw // of a put and a delete the newer
				}
			}
			var e engagement.Engagement
			if err := json.Unmarshal(r.Raw, &e); err != nil || r.Status != http.StatusOK {
				t.Errorf("%d %s: %v", r.Status, r.Raw, err)
			}
			mu.Lock()
			defer mu.Unlock()
			versions = append(versions, e.Version)
		})
	}
	wg.Wait()
	slices.Sort(versions)
	if len(slices.Compact(slices.Clone(versions))) != writers {
		t.Errorf("versions %v: each write has its own", versions)
	}
	events := a.outbox(user.String() + ":" + v.ID.String())
	for i, e := range events {
		if e.Version != int64(i+1) {
			t.Errorf("event %d has version %d", i+1, e.Version)
		}
	}
	e := only(t, a.engagementRows(user.String(), v.ID.String()).GetEngagements())
	if e.GetVersion() != int64(len(events)) || e.GetVersion() < writers {
		t.Errorf("%v after %d events of %d writers", e, len(events), writers)
	}
}

func TestIfMatchOfAnEngagement(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	target := engaged(uuid.New(), a.create())
	for i, step := range []struct {
		method, match string
		status        int
		version       string
	}{
		{"PUT", `"1"`, 412, "0"},
		{"PUT", `*`, 412, "<nil>"},
		{"DELETE", `*`, 404, "<nil>"},
		{"PUT", ``, 200, "1"},
		{"PUT", `"2"`, 412, "1"},
		{"PUT", `"1"`, 200, "2"},
		{"PUT", `*`, 200, "3"},
		{"DELETE", `"2"`, 412, "3"},
		{"DELETE", `"3"`, 200, "4"},
		{"PUT", `"3"`, 412, "4"},
		{"PUT", `*`, 412, "<nil>"},
		{"PUT", `"4"`, 200, "5"}, // no write since the deletion
		{"DELETE", `*`, 200, "6"},
	} {
		var headers []string
		if step.match != "" {
			headers = []string{"If-Match", step.match}
		}
		var body any
		if step.method == "PUT" {
			body = fmt.Sprintf(`{"watched_seconds": %d}`, i)
		}
		if r := a.call(step.method, target, body, headers...); r.Status != step.status || r.field("version") != step.version {
			t.Errorf("step %d, %s %s: %d %s, want %d and version %s", i, step.method, step.match, r.Status, r.Raw, step.status, step.version)
		}
	}
}

func TestRetryOfAnEngagementGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	target := engaged(uuid.New(), a.create())
	first := a.call("PUT", target, `{"liked": true}`, "Idempotency-Key", "k")
	removed := a.call("DELETE", target, nil, "Idempotency-Key", "k")
	checkReplay(t, first, a.call("PUT", target, `{"liked": true}`, "Idempotency-Key", "k"))
	checkReplay(t, removed, a.call("DELETE", target, nil, "Idempotency-Key", "k"))
	if r := a.call("PUT", target, `{"liked": false}`, "Idempotency-Key", "k"); r.Status != http.StatusUnprocessableEntity {
		t.Errorf("another body: %d %s", r.Status, r.Raw)
	}
	if r := a.call("PUT", engaged(uuid.New(), a.create()), `{"liked": true}`, "Idempotency-Key", "k"); r.Status != http.StatusOK || r.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("another engagement: %d %s", r.Status, r.Raw)
	}
}

func TestNoEngagementWithoutItsEvent(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, user := a.create(), uuid.New()
	a.call("PUT", engaged(user, v), `{"liked": true}`)
	had, _, err := a.engagements.Get(t.Context(), everyone, user, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	before := a.rows()
	a.exec(`ALTER TABLE video.outbox ADD CONSTRAINT broken CHECK (version < 0) NOT VALID`)
	for _, r := range []reply{
		a.call("PUT", engaged(user, v), `{}`, "Idempotency-Key", "k"),
		a.call("PUT", engaged(uuid.New(), v), `{}`, "Idempotency-Key", "k"),
		a.call("DELETE", engaged(user, v), nil, "Idempotency-Key", "k"),
	} {
		if r.Status != http.StatusInternalServerError || strings.Contains(string(r.Raw), "broken") {
			t.Errorf("got %d %s, want a 500 that keeps the cause to itself", r.Status, r.Raw)
		}
	}
	e, _, err := a.engagements.Get(t.Context(), everyone, user, v.ID)
	if diff := cmp.Diff(had, e); err != nil || diff != "" || a.rows() != before {
		t.Errorf("rows %+v became %+v; %v (-before +after):\n%s", before, a.rows(), err, diff)
	}
}

// TestEachVersionOfAnEngagementNamesTheEventBefore is TestEachVersionNamesTheEventBefore of an engagement.
func TestEachVersionOfAnEngagementNamesTheEventBefore(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, user := a.create(), uuid.New()
	a.call("PUT", engaged(user, v), `{"liked": true}`)
	a.call("PUT", engaged(user, v), `{"liked": false}`)
	a.call("DELETE", engaged(user, v), nil)
	a.call("PUT", engaged(user, v), `{"liked": true}`)
	last := a.chained(user.String()+":"+v.ID.String(), 4)
	resp, err := a.engage.GetEngagement(t.Context(), &videov1.GetEngagementRequest{UserId: user.String(), VideoId: v.ID.String()})
	if err != nil || resp.GetEngagement().GetLastEventId() != last || !resp.GetAsOf().IsValid() {
		t.Errorf("%v, %v; want it last made by %s, as of a known time", resp, err, last)
	}
}

func TestTheOrderOfViolationsOfAnEngagement(t *testing.T) {
	t.Parallel()
	r := newAPI(t).call("PUT", "/v1/users/x/engagements/y", `{"liked": null, "bookmarked": null, "watched_seconds": -1}`, "If-Match", "x", "Idempotency-Key", "a b")
	const want = `If-Match: must be versions in quotes, such as "3", or *; user_id: must be a UUID; video_id: must be a UUID; ` +
		`liked: must not be null; bookmarked: must not be null; watched_seconds: must lie between 0 and 315360000; ` +
		`Idempotency-Key: must be one value of 1 to 255 visible ASCII characters`
	if diff := cmp.Diff(want, r.field("detail")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
