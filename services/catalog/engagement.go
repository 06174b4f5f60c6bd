package catalog

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
)

const engagementType = "engagement"

// Engagement is a user's engagement with a video, as the projection or its owner has
// it, and the JSON of REST. A tombstone has ids, Version, Epoch, LastEventID, UpdatedAt
// and DeletedAt, and nothing else; it may come back to life.
type Engagement struct {
	UserID         uuid.UUID  `json:"user_id"`
	VideoID        uuid.UUID  `json:"video_id"`
	Liked          bool       `json:"liked"`
	Bookmarked     bool       `json:"bookmarked"`
	WatchedSeconds int64      `json:"watched_seconds"`
	Version        int64      `json:"version"`
	Epoch          int64      `json:"-"`
	CreatedAt      *time.Time `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
	DeletedAt      *time.Time `json:"-"`
	// LastEventID is as in Video.
	LastEventID uuid.NullUUID `json:"-"`
}

// EngagementQuery selects engagements.
type EngagementQuery struct {
	UserID string // a UUID
	// PageSize is at most 200; 0 means 50.
	PageSize int
	// PageToken is the Next of the page before, of the same user.
	PageToken string
}

// EngagementPage is one page of engagements. Next and Stale are as in Page.
type EngagementPage struct {
	Engagements []Engagement `json:"engagements"`
	Next        string       `json:"next_page_token"`
	Source      Source       `json:"source"`
	Stale       []fresh.Lag  `json:"stale,omitempty"`
}

// ReadEngagements returns the freshness that q demands; of q's token only the positions
// of engagements count.
func ReadEngagements(q fresh.Request) (fresh.Demand, error) {
	return q.Demand(engagementType, func(id string) bool {
		user, video, err := parseEngagementID(id)
		return err == nil && engagementID(user, video) == id
	})
}

// ListEngagements returns one page of a user's engagements that are not deleted, newest
// video first, with the freshness that d demands of this user's engagements. The doc of
// List explains the rest.
func (s *Service) ListEngagements(ctx context.Context, q EngagementQuery, d fresh.Demand) (EngagementPage, error) {
	var bad problem.Faults
	user := bad.UUID("user_id", q.UserID)
	filter := user.String()
	q.PageSize = cmp.Or(q.PageSize, rest.DefaultPageSize)
	rest.CheckPageSize(q.PageSize, &bad)
	before := rest.ParsePageToken[uuid.UUID](q.PageToken, filter, &bad)
	if err := cmp.Or(bad.Err(), d.OfACopy()); err != nil {
		return EngagementPage{}, err
	}
	d = d.Only(func(id string) bool { return strings.HasPrefix(id, filter+":") })
	var found []Engagement
	look := func(ctx context.Context, wanted []consistency.Position) (reached int, err error) {
		found, reached, err = listEngagements(ctx, s.db, user, before, q.PageSize+1, wanted)
		return reached, err
	}
	outcome, stale, err := s.projector.engagements.List(ctx, s.reader, s.writer, d, look)
	if err != nil {
		return EngagementPage{}, err
	}
	found, next := rest.CutPage(found, q.PageSize, func(e Engagement) uuid.UUID { return e.VideoID }, filter)
	return EngagementPage{Engagements: found, Next: next, Source: sourceOf(outcome), Stale: stale}, nil
}

// engagementSnapshot is the owner's state as a change.
func engagementSnapshot(e Engagement) inbox.Change {
	kind := inbox.Put
	if e.DeletedAt != nil {
		kind = inbox.Deleted
	}
	return inbox.Change{Kind: kind, Payload: e, Event: eventing.Event{
		ID: e.LastEventID.UUID, AggregateType: engagementType, AggregateID: engagementID(e.UserID, e.VideoID),
		Epoch: e.Epoch, Version: e.Version, OccurredAt: e.UpdatedAt,
	}}
}

// decodeEngagement reads e's payload and checks that it agrees with e's attributes.
func decodeEngagement(e eventing.Event) (inbox.Change, error) {
	user, video, err := parseEngagementID(e.AggregateID)
	if err := addressed(e, engagementType, engagementID(user, video), err); err != nil {
		return inbox.Change{}, err
	}
	if e.Type == eventing.Skipped {
		return inbox.Change{Event: e, Kind: inbox.Skipped}, nil
	}
	var envelope engagementv1.Event
	if err := proto.Unmarshal(e.Payload, &envelope); err != nil {
		return inbox.Change{}, fmt.Errorf("payload: %w", err)
	}
	var payload interface {
		GetUserId() string
		GetVideoId() string
		GetVersion() int64
	}
	var kind inbox.Kind
	switch e.Type {
	case "EngagementPut":
		payload, kind = envelope.GetPut(), inbox.Put
	case "EngagementDeleted":
		payload, kind = envelope.GetDeleted(), inbox.Deleted
	default:
		return inbox.Change{}, fmt.Errorf("event_type: %q: %w", e.Type, inbox.ErrUnknown)
	}
	if err := agrees(e, &envelope, payload.GetUserId()+":"+payload.GetVideoId(), payload.GetVersion()); err != nil {
		return inbox.Change{}, err
	}
	return inbox.Change{Event: e, Kind: kind, Payload: payload}, nil
}

// ontoEngagement is the row after c. Every change carries the whole engagement, so the
// row before does not matter.
func ontoEngagement(_ Engagement, c inbox.Change) (e Engagement) {
	switch p := c.Payload.(type) {
	case *engagementv1.EngagementPut:
		e = Engagement{
			Liked: p.GetLiked(), Bookmarked: p.GetBookmarked(), WatchedSeconds: p.GetWatchedSeconds(),
			CreatedAt: cmp.Or(pbtime.Time(p.GetCreatedAt()), &c.Event.OccurredAt),
		}
	case *engagementv1.EngagementDeleted:
		e = Engagement{DeletedAt: cmp.Or(pbtime.Time(p.GetDeletedAt()), &c.Event.OccurredAt)}
	case Engagement:
		if e = p; p.DeletedAt != nil {
			e = Engagement{DeletedAt: p.DeletedAt} // as the event would have left it
		}
	}
	e.UserID, e.VideoID, _ = parseEngagementID(c.Event.AggregateID) // checked by decode
	e.Epoch, e.Version, e.UpdatedAt, e.LastEventID = c.Event.Epoch, c.Event.Version, c.Event.OccurredAt, known(c.Event.ID)
	return e
}

func engagementID(user, video uuid.UUID) string { return user.String() + ":" + video.String() }

func parseEngagementID(id string) (user, video uuid.UUID, err error) {
	userID, videoID, _ := strings.Cut(id, ":")
	if user, err = parseID(userID); err != nil {
		return user, video, fmt.Errorf("user_id: %w", err)
	}
	if video, err = parseID(videoID); err != nil {
		return user, video, fmt.Errorf("video_id: %w", err)
	}
	return user, video, nil
}
