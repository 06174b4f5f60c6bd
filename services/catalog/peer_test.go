package catalog

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
	videov1 "example.com/lockstep/proto/video/v1"
)

// peer is the service that owns videos and engagements, with a state that tests set.
type peer struct {
	videov1.UnimplementedVideoServiceServer
	videov1.UnimplementedEngagementServiceServer
	mu     sync.Mutex
	videos map[string]*videov1.Video
	likes  map[string]*videov1.Engagement
	fault  error         // answered to everything
	asOf   time.Time     // of answers that there is no such thing; zero: they do not say
	epoch  int64         // likewise
	slow   bool          // answers nothing in time
	asked  chan struct{} // receives for each call, unless it is nil
}

func newPeer() *peer {
	return &peer{videos: map[string]*videov1.Video{}, likes: map[string]*videov1.Engagement{}, asked: make(chan struct{}, 100)}
}

func (p *peer) register(r grpc.ServiceRegistrar) {
	videov1.RegisterVideoServiceServer(r, p)
	videov1.RegisterEngagementServiceServer(r, p)
}

func (p *peer) GetVideo(ctx context.Context, req *videov1.GetVideoRequest) (*videov1.GetVideoResponse, error) {
	var v *videov1.Video
	err := p.answer(ctx, func() bool {
		v = p.videos[req.GetVideoId()]
		return v == nil || v.DeletedAt != nil && !req.GetIncludeDeleted()
	})
	return &videov1.GetVideoResponse{Video: v}, err
}

func (p *peer) GetVideos(ctx context.Context, req *videov1.GetVideosRequest) (*videov1.GetVideosResponse, error) {
	resp := &videov1.GetVideosResponse{Epoch: p.epoch}
	err := p.answer(ctx, func() bool {
		for _, id := range req.GetVideoIds() {
			if v := p.videos[id]; v != nil {
				resp.Videos = append(resp.Videos, v)
			}
		}
		return false
	})
	return resp, err
}

func (p *peer) GetEngagements(ctx context.Context, req *videov1.GetEngagementsRequest) (*videov1.GetEngagementsResponse, error) {
	resp := &videov1.GetEngagementsResponse{Epoch: p.epoch}
	err := p.answer(ctx, func() bool {
		for _, id := range req.GetVideoIds() {
			if e := p.likes[req.GetUserId()+":"+id]; e != nil {
				resp.Engagements = append(resp.Engagements, e)
			}
		}
		return false
	})
	return resp, err
}

func (p *peer) GetEngagement(ctx context.Context, req *videov1.GetEngagementRequest) (*videov1.GetEngagementResponse, error) {
	var e *videov1.Engagement
	err := p.answer(ctx, func() bool {
		e = p.likes[req.GetUserId()+":"+req.GetVideoId()]
		return e == nil || e.DeletedAt != nil && !req.GetIncludeDeleted()
	})
	return &videov1.GetEngagementResponse{Engagement: e}, err
}

// answer is p's answer to a call; lacks reports whether p lacks the requested row.
func (p *peer) answer(ctx context.Context, lacks func() bool) error {
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
	missing := lacks()
	switch {
	case p.fault != nil:
		return p.fault
	case missing:
		none := problem.New(problem.CodeNotFound, "NO_SUCH_THING", "There is no such thing.")
		if !p.asOf.IsZero() {
			none.Extra = map[string]any{"as_of": p.asOf}
		}
		if p.epoch > 0 {
			none.Extra = map[string]any{"epoch": p.epoch}
		}
		return none
	}
	return nil
}

func (p *peer) hasLike(e *videov1.Engagement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.likes[e.GetUserId()+":"+e.GetVideoId()] = e
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

func (s *slowOwner) Fetch(ctx context.Context, id string, timeout time.Duration) (Video, time.Time, error) {
	if s.questions.Add(1) > 1 {
		return s.videos.Fetch(ctx, id, timeout)
	}
	close(s.probing)
	<-s.seen
	return Video{}, time.Time{}, consistency.ErrOwnerUnavailable
}
