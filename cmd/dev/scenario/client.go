package scenario

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/live"
	"example.com/lockstep/internal/walk"
	"example.com/lockstep/pkg/eventing"
)

const (
	// scrapeTime bounds one request for metrics. The service may have no process that answers.
	scrapeTime = 2 * time.Second
	// maxMetrics bounds the answer to a request for metrics, in bytes. A usual answer has a tenth
	// of this.
	maxMetrics = 4 << 20
)

// video is a video in an answer of a service.
type video = walk.Answer

func (p *Pair) create(ctx context.Context, title string) (video, error) {
	return p.write(ctx, http.MethodPost, "/v1/videos",
		fmt.Sprintf(`{"uploader_id":%q,"title":%q,"duration_seconds":60}`, walk.User, title))
}

// update sets the duration of a video. Each call passes another value of seconds, so each call
// changes the video.
func (p *Pair) update(ctx context.Context, id uuid.UUID, seconds int) (video, error) {
	return p.write(ctx, http.MethodPatch, "/v1/videos/"+id.String(), fmt.Sprintf(`{"duration_seconds":%d}`, 100+seconds))
}

func (p *Pair) remove(ctx context.Context, id uuid.UUID) (video, error) {
	return p.write(ctx, http.MethodDelete, "/v1/videos/"+id.String(), `{"reason":"the scenario is over"}`)
}

// like makes n new users like a video. It returns the ids of the likes' aggregates.
func (p *Pair) like(ctx context.Context, id uuid.UUID, n int) (liked []string, err error) {
	for range n {
		user := uuid.New()
		header := http.Header{}
		if p.Issuer != nil {
			token, err := p.Issuer.Mint(eventing.DefaultTenant, user)
			if err != nil {
				return liked, err
			}
			header.Set("Authorization", "Bearer "+token)
		}
		v, err := p.call(ctx, http.MethodPut, fmt.Sprintf("%s/v1/users/%s/engagements/%s", p.VideoURL, user, id), `{"liked":true}`, header)
		if err == nil && v.Status != http.StatusOK {
			err = fmt.Errorf("a like: %d", v.Status)
		}
		if err != nil {
			return liked, err
		}
		liked = append(liked, user.String()+":"+id.String())
	}
	return liked, nil
}

// write sends a write. If the connection was closed without an answer, write sends the request once
// more. Go's own client does the same in some cases. Both requests have the same idempotency key,
// so the service makes at most one write.
func (p *Pair) write(ctx context.Context, method, path, body string) (video, error) {
	header := http.Header{}
	if !p.once {
		header.Set("Idempotency-Key", uuid.NewString())
	}
	v, err := p.call(ctx, method, p.VideoURL+path, body, header)
	if err != nil && v.Status == 0 && ctx.Err() == nil && !p.once {
		v, err = p.call(ctx, method, p.VideoURL+path, body, header)
	}
	if err == nil && v.Status >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %d %s", method, path, v.Status, v.Detail)
	}
	return v, err
}

// read reads a video from catalog. The request has the consistency token, unless token is empty.
// The service may wait for up to wait seconds.
func (p *Pair) read(ctx context.Context, id uuid.UUID, token string, wait int) (video, error) {
	header := http.Header{"Prefer": {fmt.Sprintf("wait=%d", wait)}}
	if token != "" {
		header.Set("Consistency-Token", token)
	}
	return p.call(ctx, http.MethodGet, p.CatalogURL+"/v1/videos/"+id.String(), "", header)
}

// fresh reads a video with the token of the write that answered wrote. It returns an error if the
// answer has a lower version than the write.
func (p *Pair) fresh(ctx context.Context, wrote video, wait int) (video, error) {
	v, err := p.read(ctx, wrote.ID, wrote.Token, wait)
	switch {
	case err != nil:
		return v, err
	case v.Status != http.StatusOK && v.Status != http.StatusGone:
		return v, fmt.Errorf("the read answered %d", v.Status)
	case v.Version < wrote.Version:
		return v, fmt.Errorf("the token is of version %d, and the answer of version %d", wrote.Version, v.Version)
	}
	return v, nil
}

func (p *Pair) call(ctx context.Context, method, url, body string, header http.Header) (video, error) {
	started := time.Now()
	v, err := p.client.Call(ctx, method, url, body, header)
	if v.Status != 0 {
		p.met.answered(url, started)
	}
	return v, err
}

func (p *Pair) scrape(ctx context.Context, service string) (live.Samples, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	response, err := p.client.Get(ctx, service+"/metrics")
	if err != nil {
		return nil, fmt.Errorf("/metrics: %w", err)
	}
	defer response.Body.Close()
	return live.ParseSamples(io.LimitReader(response.Body, maxMetrics))
}

// shutdown counts the answered requests to a service that is asked to end. under counts the
// requests that were under way when the service was asked. later counts the requests that began
// after that. A nil shutdown counts nothing.
type shutdown struct {
	url string // base URL of the service

	mu           sync.Mutex
	asked        time.Time
	under, later int
}

// begin must be called directly before the service is asked to end.
func (s *shutdown) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Now()
}

// answered counts an answered request to url. started is the time at which the request began.
func (s *shutdown) answered(url string, started time.Time) {
	if s == nil || !strings.HasPrefix(url, s.url) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.asked.IsZero():
	case started.Before(s.asked):
		s.under++
	default:
		s.later++
	}
}

func (s *shutdown) requests() (under, later int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under, s.later
}
