// Package services_test tests the pair as a whole: both services, a real Postgres and a
// real broker. Every story runs on the repository's own Pub/Sub and, with LOCKSTEP_FULL=1, on the
// official emulator where that is installed.
//
// Begin with writeIsReadFresh. The stories of TestPair run both services in this
// process; the tests in which something is killed or drained (restart_test.go,
// crash_test.go, drain_test.go) run the commands that are deployed.
package services_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

func TestPair(t *testing.T) {
	t.Parallel()
	tellStories(t, sharedBroker(t))
}

// TestPairOnTheEmulator runs alone, because the services of this process find only one
// broker at a time.
func TestPairOnTheEmulator(t *testing.T) {
	b := startBroker(t, broker.Official)
	t.Setenv(emulatorHost, b.addr)
	t.Run("an operator retries, redrives, gives up", func(t *testing.T) {
		t.Parallel()
		runbook(t, newWorld(t, b))
	})
	tellStories(t, b)
}

func tellStories(t *testing.T, b *testBroker) {
	t.Helper()
	stories := []struct {
		name string
		run  func(t *testing.T, w *world)
	}{
		{"a write is read fresh", writeIsReadFresh},
		{"a write is read fresh over gRPC", writeIsReadFreshOverGRPC},
		{"the owner answers when the projection is behind", ownerAnswersWhenBehind},
		{"a session sees its writes", sessionSeesItsWrites},
		{"sessions over gRPC", sessionsOverGRPC},
		{"the owner is down and the projection behind", ownerIsDownAndBehind},
		{"a redelivery has no effect", redeliveryHasNoEffect},
		{"events out of order end right", disorderEndsRight},
		{"a deleted video stays deleted", deletedStaysDeleted},
		{"a gap is repaired from the owner", gapIsRepaired},
		{"a gap is held while the owner is away", gapIsHeldWhileOwnerIsAway},
		{"poison goes to the dead letters", poisonGoesToTheDeadLetters},
		{"an engagement comes, goes and returns", engagementReturns},
		{"a session sees its engagements", sessionSeesItsEngagements},
		{"engagements repeated and out of order end right", engagementDisorderEndsRight},
		{"engagements have dead letters of their own", engagementDeadLetters},
		{"video restarts", videoRestarts},
		{"catalog restarts", catalogRestarts},
		{"the database fails over", databaseFailsOver},
		{"a recorder shows the publish order", recorderShowsThePublishOrder},
	}
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, b)
			w.recordVersions(t)
			s.run(t, w)
		})
	}
}

// writeIsReadFresh is the life of a video: each write answers with a token, and
// a read with that token sees the write.
func writeIsReadFresh(t *testing.T, w *world) {
	w.startVideo(t)
	w.startCatalog(t)

	created := w.create(t, "First cut")
	if created.Token == "" || created.header.Get("Consistency-Token") != created.Token {
		t.Fatalf("token %q in the body, %q in the header", created.Token, created.header.Get("Consistency-Token"))
	}
	read := w.fresh(t, created.ID, created.Token).is(t, http.StatusOK, 1)
	if read.Title != "First cut" {
		t.Errorf("title is %q", read.Title)
	}

	updated := w.update(t, created, fields{"title": "Second cut"})
	read = w.fresh(t, created.ID, updated.Token).is(t, http.StatusOK, 2)
	if read.Title != "Second cut" {
		t.Errorf("title is %q", read.Title)
	}
	list := call(t, http.MethodGet, "http://"+w.catalogAddr+"/v1/videos?q=second&consistency_token="+updated.Token, nil, nil)
	if len(list.Videos) != 1 || list.Videos[0].Version != 2 {
		t.Errorf("the list shows %+v, want version 2", list.Videos)
	}

	deleted := w.remove(t, updated)
	read = w.fresh(t, created.ID, deleted.Token).is(t, http.StatusGone, 3)
	if read.DeletedAt == nil || !read.DeletedAt.Equal(*deleted.DeletedAt) {
		t.Errorf("deleted at %v, want %v", read.DeletedAt, deleted.DeletedAt)
	}
	w.livedExactly(t, created.ID, 1, 2, 3)
}

func writeIsReadFreshOverGRPC(t *testing.T, w *world) {
	w.startVideo(t)
	w.startCatalog(t)
	videos, copies := videov1.NewVideoServiceClient(w.dial(t, w.videoAddr)), catalogv1.NewCatalogServiceClient(w.dial(t, w.catalogAddr))
	ctx := t.Context()
	read := func(id, token string) (*catalogv1.GetVideoResponse, error) {
		return copies.GetVideo(ctx, &catalogv1.GetVideoRequest{VideoId: id, AtLeastAsFresh: token, Wait: &durationpb.Duration{Seconds: 10}})
	}

	created, err := videos.CreateVideo(ctx, &videov1.CreateVideoRequest{UploaderId: uploader, Title: "First cut"})
	if err != nil {
		t.Fatal(err)
	}
	v := created.GetVideo()
	v.Title = "Second cut"
	updated, err := videos.UpdateVideo(ctx, &videov1.UpdateVideoRequest{
		Video: v, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}}, ExpectedVersion: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got *catalogv1.GetVideoResponse
	eventually(t, "the projection has the update", func() bool { // the owner answers when ten seconds are over
		got, err = read(v.GetVideoId(), updated.GetConsistencyToken())
		return status.Code(err) != codes.Unavailable && got.GetSource() != catalogv1.Source_SOURCE_AUTHORITY
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetVideo().GetVersion() != 2 || got.GetVideo().GetTitle() != "Second cut" || got.GetSource() != catalogv1.Source_SOURCE_PROJECTION {
		t.Errorf("read %v, want version 2 from the projection", got)
	}

	deleted, err := videos.DeleteVideo(ctx, &videov1.DeleteVideoRequest{VideoId: v.GetVideoId()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(v.GetVideoId(), deleted.GetConsistencyToken()); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "deleted") {
		t.Errorf("read of a deleted video: %v, want NOT_FOUND that says so", err)
	}
}

func (w *world) dial(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ownerAnswersWhenBehind: the event of version 2 never arrives.
func ownerAnswersWhenBehind(t *testing.T, w *world) {
	w.startMutedVideo(t)
	w.startCatalog(t)
	first := w.create(t, "First cut")
	second := w.update(t, first, fields{"title": "Second cut"})

	w.publish(t, w.events(t, first.ID)[0].Message())
	w.fresh(t, first.ID, first.Token).is(t, http.StatusOK, 1)
	w.ofOwner(t, first.ID, second.Token).is(t, http.StatusOK, 2)
	w.read(t, first.ID, "", 0).is(t, http.StatusOK, 1).from(t, "projection")

	if a := w.read(t, first.ID, tokenFor(first.ID, 3), 0); a.code != http.StatusConflict {
		t.Errorf("a token ahead of the owner is answered %d, want 409", a.code)
	}
}

// tokenFor is the token that a write of that version would have had.
func tokenFor(id string, version int64) string {
	return consistency.Token{Positions: []consistency.Position{
		{AggregateType: "video", AggregateID: id, Epoch: eventing.FirstEpoch, Version: version},
	}}.String()
}

// redeliveryHasNoEffect sends every message three times. The update behind the
// repeats comes last, so they have been handled when it is visible.
func redeliveryHasNoEffect(t *testing.T, w *world) {
	w.startVideo(t)
	w.startCatalog(t)
	second := w.update(t, w.create(t, "First cut"), fields{"title": "Second cut"})
	w.reaches(t, second)

	for range 2 {
		for _, e := range w.events(t, second.ID) {
			w.publish(t, e.Message())
		}
	}
	third := w.update(t, second, fields{"title": "Third cut"})
	w.fresh(t, third.ID, third.Token).is(t, http.StatusOK, 3)
	w.livedForward(t, third.ID, 3)
	if n := w.inbox(t, third.ID, "done"); n != 3 {
		t.Errorf("%d inbox rows are done, want 3: one for each event", n)
	}
}
