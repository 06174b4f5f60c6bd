package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	videov1 "example.com/lockstep/proto/video/v1"
)

var (
	// errOwnerLacks: the owner answered that there never was such a video.
	errOwnerLacks = errors.New("owner does not know the video")
	// errOwnerAway: the owner did not answer, or not sensibly.
	errOwnerAway = errors.New("owner cannot be asked")
)

// Owner is the way to the service that owns videos.
type Owner struct{ videos videov1.VideoServiceClient }

// DialOwner connects to the owner's gRPC address (host:port) when it is first
// asked, and again after it was away. Close the connection after the last use.
func DialOwner(addr string) (Owner, *grpc.ClientConn, error) {
	conn, err := grpc.NewClient(addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler()),
		// The timeout is also how soon a connection that went dead without a
		// word (a host that vanished) is given up.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
		// Readers are waiting: try again sooner than the default's two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}))
	if err != nil {
		return Owner{}, nil, fmt.Errorf("dial owner: %w", err)
	}
	return Owner{videov1.NewVideoServiceClient(conn)}, conn, nil
}

// get returns the video or its tombstone as the owner has it. Its errors are
// errOwnerLacks, errOwnerAway, or that the caller has gone away.
func (o Owner) get(ctx context.Context, id uuid.UUID, timeout time.Duration) (Video, error) {
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := o.videos.GetVideo(asking, &videov1.GetVideoRequest{VideoId: id.String(), IncludeDeleted: true})
	p := resp.GetVideo()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Video{}, ctx.Err()
	case status.Code(err) == codes.NotFound:
		return Video{}, fmt.Errorf("%w: %s", errOwnerLacks, id)
	case err != nil:
		return Video{}, fmt.Errorf("%w: %w", errOwnerAway, err)
	case p.GetVideoId() != id.String() || p.GetVersion() < 1 || p.GetEpoch() < 1:
		return Video{}, fmt.Errorf("%w: asked for video %s, got %q version %d epoch %d",
			errOwnerAway, id, p.GetVideoId(), p.GetVersion(), p.GetEpoch())
	}
	uploader, err := parseID(p.GetUploaderId())
	if err != nil {
		return Video{}, fmt.Errorf("%w: uploader_id: %w", errOwnerAway, err)
	}
	return Video{
		ID: id, UploaderID: uploader, Title: p.GetTitle(), Description: p.GetDescription(),
		DurationSeconds: p.GetDurationSeconds(), PublishedAt: timeOf(p.GetPublishedAt()),
		Version: p.GetVersion(), Epoch: p.GetEpoch(),
		CreatedAt: timeOf(p.GetCreatedAt()), UpdatedAt: p.GetUpdatedAt().AsTime(), DeletedAt: timeOf(p.GetDeletedAt()),
	}, nil
}
