package video

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/services/video/aggregate"
)

// Get returns a video of the caller's tenant that is not deleted. asOf is the state of the database
// that the answer shows, and is also set with the error that there is no such video.
func (s *Service) Get(ctx context.Context, caller auth.Principal, id uuid.UUID) (v Video, asOf aggregate.AsOf, err error) {
	v, asOf, err = selectVideo(ctx, s.db, aggregate.Scope(caller), id)
	if err != nil {
		return Video{}, aggregate.AsOf{}, fmt.Errorf("get video: %w", err)
	}
	return v, asOf, v.Check(aggregateType)
}

// GetMany returns the named videos of all tenants, including tombstones. Like Get, it also returns
// the state of the database that the answer shows. It is for replicas.
func (s *Service) GetMany(ctx context.Context, ids []string) ([]Video, aggregate.AsOf, error) {
	if err := aggregate.CheckIDs("video_ids", ids); err != nil {
		return nil, aggregate.AsOf{}, err
	}
	videos, asOf, err := selectVideos(ctx, s.db, ids)
	if err != nil {
		return nil, aggregate.AsOf{}, fmt.Errorf("get videos: %w", err)
	}
	return videos, asOf, nil
}

// Filter selects the videos of a list.
type Filter struct {
	UploaderID uuid.NullUUID // if it is not valid, the videos of every uploader are selected
}

// uploadedBy selects the videos of one uploader. uuid.Nil is an uploader without videos.
func uploadedBy(uploader uuid.UUID) Filter {
	return Filter{UploaderID: uuid.NullUUID{UUID: uploader, Valid: true}}
}

// text is the length of v's text in an answer, in bytes.
func (v Video) text() int { return rest.TextSize(v.Title, v.Description) }

// List returns up to size (1 to 200) videos of the caller's tenant that are not deleted, newest
// first. It returns fewer videos if they are long (rest.FitPage). next is the token for the next page.
// It is empty on the last page, and valid for this caller only. found is as for Create.
func (s *Service) List(
	ctx context.Context, caller auth.Principal, f Filter, size int, token string, found problem.Violations,
) (videos []Video, next string, err error) {
	filter := caller.Scope() + "{" + f.UploaderID.UUID.String() + "}"
	rest.CheckPageSize(size, &found)
	before := rest.ParsePageToken(token, filter, &found)
	if err := found.Err(); err != nil {
		return nil, "", err
	}
	videos, err = selectPage(ctx, s.db, aggregate.Scope(caller), f, before, size+1)
	if err != nil {
		return nil, "", fmt.Errorf("list videos: %w", err)
	}
	videos, next = rest.CutPage(videos, rest.FitPage(videos, size, Video.text), func(v Video) uuid.UUID { return v.ID }, filter)
	return videos, next, nil
}
