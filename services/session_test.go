package services_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/session"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// caller is the pattern for callers of the pair over REST, such as a gateway or a web
// page's backend. Its client keeps the token of each answer in the context's session
// and sends it with each read. Every read then sees the session's own writes, and
// nothing older than its earlier reads, at any instance.
type caller struct {
	client         http.Client
	video, catalog string // base URLs
}

// call makes a request and decodes the answer into out.
func (c *caller) call(ctx context.Context, method, url, body string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// sessionSeesItsWrites writes, keeps the token, and reads its own write.
func sessionSeesItsWrites(t *testing.T, w *world) {
	w.startVideo(t)
	w.startCatalog(t)
	c := caller{video: "http://" + w.videoAddr, catalog: "http://" + w.catalogAddr, client: http.Client{Transport: session.Transport{}}}
	ctx := session.With(t.Context(), new(session.Session))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// On a busy machine the owner may take longer than catalog waits for it, which then
	// says when to come again.
	read := func(path string, out any) (err error) {
		t.Helper()
		eventually(t, "catalog has the answer", func() bool {
			err = c.call(ctx, http.MethodGet, c.catalog+path, "", out)
			return err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusServiceUnavailable))
		})
		return err
	}
	for n := range consistency.MaxPositions + 3 {
		var written, seen, list answer
		title := fmt.Sprint("Cut ", n)
		must(c.call(ctx, http.MethodPost, c.video+"/v1/videos", `{"uploader_id":"`+uploader+`","title":"`+title+`"}`, &written))
		must(read("/v1/videos/"+written.ID, &seen))
		must(read("/v1/videos?page_size=2", &list))
		if seen.Title != title || len(list.Videos) == 0 || list.Videos[0].ID != written.ID {
			t.Errorf("%d: wrote %q, read %q, listed %+v", n, title, seen.Title, list.Videos)
		}
	}
	var deleted, seen answer
	must(c.call(ctx, http.MethodPost, c.video+"/v1/videos", `{"uploader_id":"`+uploader+`","title":"x"}`, &seen))
	must(c.call(ctx, http.MethodDelete, c.video+"/v1/videos/"+seen.ID, "", &deleted))
	if err := read("/v1/videos/"+seen.ID, &seen); err == nil || !strings.Contains(err.Error(), "410") {
		t.Errorf("after its deletion: %v", err)
	}
}

// sessionsOverGRPC is the same with the generated clients. One session writes and
// deletes; another, without any token so far, takes over the versions that a read has
// returned to it.
func sessionsOverGRPC(t *testing.T, w *world) {
	w.startMutedVideo(t) // no event leaves: the projection gets nothing from events
	w.startCatalog(t)
	dial := func(addr string, inner ...grpc.UnaryClientInterceptor) *grpc.ClientConn {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithUnaryInterceptor(session.Intercept), grpc.WithChainUnaryInterceptor(inner...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// On a busy machine the owner may take longer than catalog waits for it.
	again := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) {
		eventually(t, "catalog has the answer", func() bool {
			err = invoke(ctx, method, req, reply, cc, opts...)
			return status.Code(err) != codes.Unavailable
		})
		return err
	}
	videos, copies := videov1.NewVideoServiceClient(dial(w.videoAddr)), catalogv1.NewCatalogServiceClient(dial(w.catalogAddr, again))
	writer, reader := new(session.Session), new(session.Session)
	mine, theirs := session.With(t.Context(), writer), session.With(t.Context(), reader)

	created, err := videos.CreateVideo(mine, &videov1.CreateVideoRequest{UploaderId: uploader, Title: "First cut"})
	if err != nil {
		t.Fatal(err)
	}
	id := created.GetVideo().GetVideoId()
	get := &catalogv1.GetVideoRequest{VideoId: id, Wait: durationpb.New(0)}
	if _, err := copies.GetVideo(theirs, get); problem.ReasonOf(err) != "VIDEO_NOT_FOUND" {
		t.Errorf("who has met nothing demands nothing, and the projection has nothing: %v", err)
	}
	read, err := copies.GetVideo(mine, get)
	if err != nil || read.GetVideo().GetVersion() != 1 || get.GetAtLeastAsFresh() != "" {
		t.Errorf("%v, %v; with the request %v", read, err, get)
	}
	list, err := copies.ListVideos(mine, &catalogv1.ListVideosRequest{Wait: durationpb.New(0)})
	if err != nil || len(list.GetVideos()) != 1 {
		t.Errorf("%v, %v; want the video that the session has written", list, err)
	}
	if _, err := videos.DeleteVideo(mine, &videov1.DeleteVideoRequest{VideoId: id}); err != nil {
		t.Fatal(err)
	}
	if seen, err := copies.GetVideo(theirs, get); err != nil || seen.GetVideo().GetVersion() != 1 {
		t.Errorf("%v, %v; want the projection's video", seen, err)
	}
	full := &catalogv1.GetVideoRequest{VideoId: id, Consistency: catalogv1.Consistency_CONSISTENCY_FULLY_CONSISTENT}
	for name, ctx := range map[string]context.Context{"its writer": mine, "who was shown so by the owner": theirs} {
		if _, err := copies.GetVideo(ctx, full); problem.ReasonOf(err) != "VIDEO_DELETED" {
			t.Errorf("%s: %v", name, err)
		}
		// A reader that knows of the deletion never gets the projection's row again.
		if _, err := copies.GetVideo(ctx, get); problem.ReasonOf(err) != "VIDEO_DELETED" {
			t.Errorf("%s reads again: %v", name, err)
		}
	}
}

// ownerIsDownAndBehind: the projection lacks the version that the token demands, and
// the owner is down. Both protocols report that in time, with the time to wait; with
// the owner back the same requests succeed.
func ownerIsDownAndBehind(t *testing.T, w *world) {
	stop := w.startMutedVideo(t)
	w.startCatalog(t)
	first := w.create(t, "First cut")
	w.publish(t, w.events(t, first.ID)[0].Message())
	w.reaches(t, first)
	second := w.update(t, first, fields{"title": "Second cut"})
	stop()
	conn, err := grpc.NewClient(w.catalogAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	overGRPC := func() (*catalogv1.GetVideoResponse, error) {
		return catalogv1.NewCatalogServiceClient(conn).GetVideo(t.Context(), &catalogv1.GetVideoRequest{
			VideoId: first.ID, AtLeastAsFresh: second.Token, Wait: durationpb.New(0),
		})
	}
	list := func() answer {
		return call(t, http.MethodGet, "http://"+w.catalogAddr+"/v1/videos?consistency_token="+second.Token, http.Header{"Prefer": {"wait=0"}}, nil)
	}
	for _, wait := range []int{0, 1} {
		a := w.read(t, first.ID, second.Token, wait)
		if a.code != http.StatusServiceUnavailable || a.Reason != "NOT_FRESH_ENOUGH" || a.header.Get("Retry-After") == "" || a.Type != "/problems/not-fresh-enough" {
			t.Errorf("wait=%d: %+v", wait, a)
		}
	}
	if a := list(); a.code != http.StatusServiceUnavailable || a.Reason != "NOT_FRESH_ENOUGH" {
		t.Errorf("list: %+v", a)
	}
	if _, err := overGRPC(); status.Code(err) != codes.Unavailable || problem.ReasonOf(err) != "NOT_FRESH_ENOUGH" {
		t.Errorf("over gRPC: %v", err)
	}
	w.read(t, first.ID, first.Token, 0).is(t, http.StatusOK, 1).from(t, "projection")

	w.startMutedVideo(t)
	eventually(t, "the same request succeeds", func() bool { return w.read(t, first.ID, second.Token, 0).code == http.StatusOK })
	w.ofOwner(t, first.ID, second.Token).is(t, http.StatusOK, 2)
	if resp, err := overGRPC(); err != nil || resp.GetVideo().GetVersion() != 2 {
		t.Errorf("over gRPC: %v, %v", resp, err)
	}
	if a := list(); a.code != http.StatusOK || a.Videos[0].Version != 2 || a.Source != "authority" {
		t.Errorf("list: %+v", a)
	}
}
