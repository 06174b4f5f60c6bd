package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/walk"
	"example.com/lockstep/pkg/eventing"
)

// video is a video as an answer of a service has it.
type video struct {
	ID      uuid.UUID `json:"video_id"`
	Version int64     `json:"version"`
	Token   string    `json:"consistency_token"`
	Title   string    `json:"title"`
	Source  string    `json:"source"`
	Detail  string    `json:"detail"` // of a problem

	status int
}

func (p *Pair) create(ctx context.Context, title string) (video, error) {
	return p.write(ctx, http.MethodPost, "/v1/videos",
		fmt.Sprintf(`{"uploader_id":%q,"title":%q,"duration_seconds":60}`, walk.User, title))
}

// update sets a field that every update changes.
func (p *Pair) update(ctx context.Context, id uuid.UUID, seconds int) (video, error) {
	return p.write(ctx, http.MethodPatch, "/v1/videos/"+id.String(), fmt.Sprintf(`{"duration_seconds":%d}`, 100+seconds))
}

func (p *Pair) remove(ctx context.Context, id uuid.UUID) (video, error) {
	return p.write(ctx, http.MethodDelete, "/v1/videos/"+id.String(), `{"reason":"the scenario is over"}`)
}

// like makes n new users like a video. It returns the ids of the aggregates.
func (p *Pair) like(ctx context.Context, id uuid.UUID, n int) (liked []string, err error) {
	for range n {
		user, token := uuid.New(), ""
		if p.Issuer != nil {
			if token, err = p.Issuer.Mint(eventing.DefaultTenant, user); err != nil {
				return liked, err
			}
		}
		url := fmt.Sprintf("%s/v1/users/%s/engagements/%s", p.VideoURL, user, id)
		got, err := p.call(ctx, http.MethodPut, url, `{"liked":true}`, token, http.Header{"Content-Type": {"application/json"}})
		if err == nil && got.status != http.StatusOK {
			err = fmt.Errorf("a like: %d", got.status)
		}
		if err != nil {
			return liked, err
		}
		liked = append(liked, user.String()+":"+id.String())
	}
	return liked, nil
}

// write sends a write, and once more if its connection was closed without an answer, as
// Go's own client does for some of them. The idempotency key makes the two one.
func (p *Pair) write(ctx context.Context, method, path, body string) (video, error) {
	header := http.Header{"Content-Type": {"application/json"}}
	if !p.once {
		header.Set("Idempotency-Key", uuid.NewString())
	}
	v, err := p.call(ctx, method, p.VideoURL+path, body, p.token, header)
	if err != nil && v.status == 0 && ctx.Err() == nil && !p.once {
		v, err = p.call(ctx, method, p.VideoURL+path, body, p.token, header)
	}
	if err == nil && v.status >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %d %s", method, path, v.status, v.Detail)
	}
	return v, err
}

// read asks catalog, with the token if there is one. A read may wait for the seconds.
func (p *Pair) read(ctx context.Context, id uuid.UUID, token string, wait int) (video, error) {
	header := http.Header{"Prefer": {fmt.Sprintf("wait=%d", wait)}}
	if token != "" {
		header.Set("Consistency-Token", token)
	}
	return p.call(ctx, http.MethodGet, p.CatalogURL+"/v1/videos/"+id.String(), "", p.token, header)
}

// fresh reads with the token of a write, and fails on an older answer.
func (p *Pair) fresh(ctx context.Context, wrote video, wait int) (video, error) {
	got, err := p.read(ctx, wrote.ID, wrote.Token, wait)
	switch {
	case err != nil:
		return got, err
	case got.status != http.StatusOK && got.status != http.StatusGone:
		return got, fmt.Errorf("the read answered %d", got.status)
	case got.Version < wrote.Version:
		return got, fmt.Errorf("the token is of version %d, and the answer of version %d", wrote.Version, got.Version)
	}
	return got, nil
}

func (p *Pair) call(ctx context.Context, method, url, body, token string, header http.Header) (video, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return video{}, err
	}
	r.Header = header
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	begun := time.Now()
	response, err := p.client.Do(r)
	if err != nil {
		return video{}, err
	}
	defer response.Body.Close()
	p.met.answered(url, begun)
	v := video{status: response.StatusCode}
	if err := json.NewDecoder(response.Body).Decode(&v); err != nil {
		return v, fmt.Errorf("%s %s: %s: %w", method, url, response.Status, err)
	}
	return v, nil
}
