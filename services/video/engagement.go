package video

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

const engagementType = "engagement"

// Engagement is a user's engagement with a video: the row in the store and the JSON of
// REST. A tombstone has ids, version and times, and nothing else; after it, the
// versions go on.
type Engagement struct {
	UserID         uuid.UUID  `json:"user_id"`
	VideoID        uuid.UUID  `json:"video_id"`
	Liked          bool       `json:"liked"`
	Bookmarked     bool       `json:"bookmarked"`
	WatchedSeconds int64      `json:"watched_seconds"`
	Version        int64      `json:"version"`    // 0 where there never was one
	CreatedAt      time.Time  `json:"created_at"` // of this life
	UpdatedAt      time.Time  `json:"updated_at"`
	DeletedAt      *time.Time `json:"deleted_at,omitempty"` // on tombstones only
	// LastEventID is as in Video.
	LastEventID uuid.NullUUID `json:"-"`
}

// PutEngagement stores a user's whole engagement with a video. If the stored one is
// equal, that makes no version and no event. A deleted video takes no engagement.
func (s *Service) PutEngagement(ctx context.Context, to Engagement, w Write) (Answer[Engagement], error) {
	r, err := w.check("PUT "+to.path(), to.given(), to.faults())
	if err != nil {
		return Answer[Engagement]{}, err
	}
	var v *Video
	name, lock := engagementID(to.UserID, to.VideoID), lockEngagement(to.UserID, to.VideoID, &v)
	return change(ctx, s, r, name, lock, writeEngagement, func(e *Engagement) ([]eventing.Event, error) {
		if err := v.expect(0); err != nil {
			return nil, err
		}
		exists := e.Version > 0 && e.DeletedAt == nil
		if err := expect(engagementType, e.Version, nil, w.IfVersion); err != nil || w.IfVersion == rest.Any && !exists {
			return nil, cmp.Or(err, errNoEngagement)
		}
		if exists && e.same(to) {
			return nil, nil
		}
		to.Version, to.CreatedAt, to.UpdatedAt = e.Version+1, e.CreatedAt, after(e.UpdatedAt)
		if !exists {
			to.CreatedAt = to.UpdatedAt
		}
		to.LastEventID = newEvent()
		previous := e.LastEventID
		*e = to
		return engagementPut(ctx, *e, previous)
	})
}

// DeleteEngagement makes an engagement a tombstone, also after the video was deleted:
// users can always take back an engagement.
func (s *Service) DeleteEngagement(ctx context.Context, user, video uuid.UUID, w Write) (Answer[Engagement], error) {
	name := Engagement{UserID: user, VideoID: video}
	r, err := w.check("DELETE "+name.path(), name.given(), name.faults())
	if err != nil {
		return Answer[Engagement]{}, err
	}
	lock := lockEngagement(user, video, nil)
	return change(ctx, s, r, engagementID(user, video), lock, writeEngagement, func(e *Engagement) ([]eventing.Event, error) {
		if err := e.expect(w.IfVersion); err != nil {
			return nil, err
		}
		at := after(e.UpdatedAt)
		previous := e.LastEventID
		*e = Engagement{
			UserID: user, VideoID: video, Version: e.Version + 1, CreatedAt: e.CreatedAt, UpdatedAt: at, DeletedAt: &at,
			LastEventID: newEvent(),
		}
		return engagementDeleted(ctx, *e, previous)
	})
}

// GetEngagement returns an engagement as it is now; a deleted one only when
// tombstones are asked for.
func (s *Service) GetEngagement(ctx context.Context, user, video uuid.UUID, includeDeleted bool) (Engagement, error) {
	e, _, err := s.GetEngagementAsOf(ctx, user, video, includeDeleted)
	return e, err
}

// GetEngagementAsOf is GetEngagement with a time, as in GetAsOf.
func (s *Service) GetEngagementAsOf(ctx context.Context, user, video uuid.UUID, includeDeleted bool) (Engagement, *time.Time, error) {
	e, asOf, err := selectEngagement(ctx, s.db, user, video)
	if err != nil {
		return Engagement{}, nil, fmt.Errorf("get engagement: %w", err)
	}
	if e == nil || e.DeletedAt == nil || !includeDeleted {
		if err := e.expect(0); err != nil {
			return Engagement{}, asOf, err
		}
	}
	return *e, asOf, nil
}

// GetEngagements returns a user's engagements with the named videos, tombstones
// included, as they are now, with a time as in GetAsOf.
func (s *Service) GetEngagements(ctx context.Context, user uuid.UUID, videos []string) ([]Engagement, *time.Time, error) {
	if err := checkIDs(videos); err != nil {
		return nil, nil, err
	}
	found, asOf, err := selectEngagementsWith(ctx, s.db, user, videos)
	if err != nil {
		return nil, nil, fmt.Errorf("get engagements: %w", err)
	}
	return found, asOf, nil
}

// EngagementFilter selects the engagements of a list.
type EngagementFilter struct {
	UserID         uuid.UUID // uuid.Nil is every user
	IncludeDeleted bool
}

// ListEngagements returns up to size (1 to 200) engagements by user, each user's
// newest video first, and a token for the page behind them, which is empty on the
// last.
func (s *Service) ListEngagements(ctx context.Context, f EngagementFilter, size int, token string,
) (found []Engagement, next string, err error) {
	var bad problem.Faults
	filter := fmt.Sprint(f)
	rest.CheckPageSize(size, &bad)
	before := rest.ParsePageToken[[2]uuid.UUID](token, filter, &bad)
	if err := bad.Err(); err != nil {
		return nil, "", err
	}
	found, err = selectEngagements(ctx, s.db, f, before, size+1)
	if err != nil {
		return nil, "", fmt.Errorf("list engagements: %w", err)
	}
	found, next = rest.CutPage(found, size, func(e Engagement) [2]uuid.UUID { return [2]uuid.UUID{e.UserID, e.VideoID} }, filter)
	return found, next, nil
}

var errNoEngagement error = problem.New(problem.CodeStale, "VERSION_MISMATCH", "There is no such engagement.")

// expect returns an error if e cannot be shown or deleted: it never existed, was
// deleted, or is not at version; 0 or less accepts any version.
func (e *Engagement) expect(version int64) error {
	if e == nil || e.Version == 0 {
		return problem.New(problem.CodeNotFound, "ENGAGEMENT_NOT_FOUND", "There is no such engagement.")
	}
	return expect(engagementType, e.Version, e.DeletedAt, version)
}

func (e Engagement) same(as Engagement) bool {
	return e.Liked == as.Liked && e.Bookmarked == as.Bookmarked && e.WatchedSeconds == as.WatchedSeconds
}

// given is the caller's input, by REST's names.
func (e Engagement) given() map[string]any {
	return given(map[string]any{"liked": e.Liked, "bookmarked": e.Bookmarked, "watched_seconds": e.WatchedSeconds})
}

func (e Engagement) faults() (f problem.Faults) {
	f.Unless(e.UserID != uuid.Nil, "user_id", "must be a UUID")
	f.Unless(0 <= e.WatchedSeconds && e.WatchedSeconds <= maxDuration, "watched_seconds",
		fmt.Sprintf("must lie between 0 and %d", maxDuration))
	return f
}

// path is e's path in REST; the idempotency keys of all protocols are bound to it.
func (e Engagement) path() string {
	return "/v1/users/" + e.UserID.String() + "/engagements/" + e.VideoID.String()
}

func (e Engagement) position() consistency.Position {
	return consistency.Position{
		AggregateType: engagementType, AggregateID: engagementID(e.UserID, e.VideoID), Epoch: eventing.Epoch, Version: e.Version,
	}
}

func engagementID(user, video uuid.UUID) string { return user.String() + ":" + video.String() }
