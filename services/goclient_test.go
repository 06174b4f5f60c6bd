package services_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/local/issuer"
	goclient "example.com/lockstep/pkg/client"
	"example.com/lockstep/pkg/eventing"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// TestGoClient: a user of the client reads back each write, with no token in the program's own
// code, while the relay is mute, so that only the token can make the read fresh.
func TestGoClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	tokens := startIssuer(t)
	w.auth.Issuer, w.auth.Audience = tokens.URL(), issuer.Audience
	w.startMutedVideo(t)
	w.startCatalog(t)
	user := uuid.New()
	c, err := goclient.New(goclient.Options{Video: w.videoAddr, Catalog: w.catalogAddr, Token: func(ctx context.Context) (string, error) {
		return issuer.Ask(ctx, tokens.URL(), eventing.DefaultTenant, user)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	created, err := c.Videos.CreateVideo(t.Context(), &videov1.CreateVideoRequest{Title: "one"})
	if err != nil {
		t.Fatal(err)
	}
	id := created.GetVideo().GetVideoId()
	if created.GetVideo().GetUploaderId() != user.String() {
		t.Errorf("the uploader is %s, want the caller %s", created.GetVideo().GetUploaderId(), user)
	}
	read, err := c.Catalog.GetVideo(t.Context(), &catalogv1.GetVideoRequest{VideoId: id})
	if err != nil || read.GetVideo().GetVersion() != 1 || read.GetVideo().GetTitle() != "one" {
		t.Fatalf("a read after the create: %v, %v", read, err)
	}
	seesItsEngagement(t, c, user.String(), id)
	if _, err := c.Videos.DeleteVideo(t.Context(), &videov1.DeleteVideoRequest{VideoId: id}); err != nil {
		t.Fatal(err)
	}
	if read, err := c.Catalog.GetVideo(t.Context(), &catalogv1.GetVideoRequest{VideoId: id}); goclient.Reason(err) != "VIDEO_DELETED" {
		t.Errorf("a read after the delete: %v, %v", read, err)
	}
}
