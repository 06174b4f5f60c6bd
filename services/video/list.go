package video

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
)

// Filter selects the videos of a list.
type Filter struct {
	UploaderID     uuid.UUID // uuid.Nil is every uploader
	IncludeDeleted bool
}

// text is the length of v's text in a message, in bytes.
func (v Video) text() int { return len(v.Title) + len(v.Description) }

// List returns up to size (1 to 200) videos, newest first, and fewer if they are very
// long; and a token for the page behind them, which is empty on the last.
func (s *Service) List(ctx context.Context, f Filter, size int, token string) (videos []Video, next string, err error) {
	var bad problem.Faults
	filter := fmt.Sprint(f)
	rest.CheckPageSize(size, &bad)
	before := rest.ParsePageToken[uuid.UUID](token, filter, &bad)
	if err := bad.Err(); err != nil {
		return nil, "", err
	}
	videos, err = selectPage(ctx, s.db, f, before, size+1)
	if err != nil {
		return nil, "", fmt.Errorf("list videos: %w", err)
	}
	videos, next = rest.CutPage(videos, rest.FitPage(videos, size, Video.text), func(v Video) uuid.UUID { return v.ID }, filter)
	return videos, next, nil
}
