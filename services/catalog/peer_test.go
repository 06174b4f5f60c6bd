package catalog

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing/consistency"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// peer is the service that owns videos, with a state that tests set.
type peer struct {
	replicationv1.UnimplementedReplicationServiceServer
	mu     sync.Mutex
	videos map[string]*videov1.Video
	likes  map[string]*videov1.Engagement
	fault  error         // answered to everything
	asOf   time.Time     // of answers; zero: they do not say
	epoch  int64         // likewise
	slow   bool          // answers nothing in time
	asked  chan struct{} // receives for each call, unless it is nil
}

func newPeer() *peer {
	return &peer{
		videos: map[string]*videov1.Video{},
		likes:  map[string]*videov1.Engagement{},
		asked:  make(chan struct{}, 100),
	}
}

func (p *peer) register(r grpc.ServiceRegistrar) {
	replicationv1.RegisterReplicationServiceServer(r, p)
}

func (p *peer) GetVideoRows(ctx context.Context, req *replicationv1.GetVideoRowsRequest) (*replicationv1.GetVideoRowsResponse, error) {
	resp := &replicationv1.GetVideoRowsResponse{}
	err := p.answer(ctx, func(asOf *timestamppb.Timestamp, epoch int64) {
		resp.AsOf, resp.Epoch = asOf, epoch
		for _, id := range req.GetVideoIds() {
			if v := p.videos[id]; v != nil {
				resp.Videos = append(resp.Videos, v)
			}
		}
	})
	return resp, err
}

// answer is p's answer to a call; read reads the rows.
func (p *peer) answer(ctx context.Context, read func(asOf *timestamppb.Timestamp, epoch int64)) error {
	if p.asked != nil {
		p.asked <- struct{}{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slow {
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		return ctx.Err()
	}
	if p.fault != nil {
		return p.fault
	}
	var asOf *timestamppb.Timestamp
	if !p.asOf.IsZero() {
		asOf = timestamppb.New(p.asOf)
	}
	read(asOf, p.epoch)
	return nil
}

func (p *peer) has(v *videov1.Video) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.videos[v.GetVideoId()] = v
}

func (p *peer) hangs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = true
}

func (p *peer) lacksAsOf(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asOf = t
}

func (p *peer) fails(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = err
}

// ownersVideo is the peer's state of a video at version.
func ownersVideo(id uuid.UUID, version int64, title string) *videov1.Video {
	return &videov1.Video{
		VideoId: id.String(), UploaderId: uploader.String(), Title: title, Description: "as its owner has it",
		DurationSeconds: 61, PublishedAt: pb(-1), Version: version, Epoch: 1, CreatedAt: pb(1), UpdatedAt: pb(version),
	}
}

func ownersTombstone(id uuid.UUID, version int64) *videov1.Video {
	v := ownersVideo(id, version, "was deleted")
	v.DeletedAt = pb(version)
	return v
}

// slowOwner is an owner of videos. Its first question hangs until seen is closed.
type slowOwner struct {
	videos

	questions     atomic.Int64
	probing, seen chan struct{}
}

func (s *slowOwner) Fetch(ctx context.Context, ids []string, timeout time.Duration) (found []Video, epoch int64, asOf time.Time, err error) {
	if s.questions.Add(1) > 1 {
		return s.videos.Fetch(ctx, ids, timeout)
	}
	close(s.probing)
	<-s.seen
	return nil, 0, time.Time{}, consistency.ErrOwnerUnavailable
}
