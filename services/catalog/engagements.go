package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

const engagementType = "engagement"

// Engagement is a user's engagement with a video, as the projection or its owner has it. It is also
// the JSON of REST. A tombstone has only its ids and Versioned. It may become an engagement again.
// Each column has the name of its field.
type Engagement struct {
	UserID         uuid.UUID `json:"user_id"`
	VideoID        uuid.UUID `json:"video_id"`
	Liked          bool      `json:"liked"`
	Bookmarked     bool      `json:"bookmarked"`
	WatchedSeconds int64     `json:"watched_seconds"`
	Versioned
}

// engagementRevision is the inbox.Completeness.Revision of this build.
var engagementRevision = projection.Revision(&engagementv1.Event{}, &videov1.Engagement{})

func (e Engagement) id() string { return engagementID(e.UserID, e.VideoID) }

// engagements is the projection.Aggregate of engagements. store_engagements.go has its Lock,
// Upsert and positions.
type engagements struct {
	db    *pgxpool.Pool
	owner replicationv1.ReplicationServiceClient
	// shadow selects the shadow table of a rebuild in place of the served table.
	shadow bool
}

// Type is the aggregate type of the events.
func (engagements) Type() string { return engagementType }

// Decode reads e's payload and checks that it agrees with e's attributes.
func (engagements) Decode(e eventing.Event) (inbox.Change, error) {
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
		return additive(e, &envelope, engagementRevision)
	}
	if err := agrees(e, &envelope, payload.GetUserId()+":"+payload.GetVideoId(), payload.GetVersion()); err != nil {
		return inbox.Change{}, err
	}
	return inbox.Change{
		Event: e, Kind: kind, Payload: payload, Revision: engagementRevision, Partial: projection.HasUnknown(&envelope),
	}, nil
}

// Position is the position of a row.
func (engagements) Position(e Engagement) inbox.Position { return e.at() }

// Apply returns the row e after the change c. Every change of a known type carries the whole
// engagement.
func (engagements) Apply(e Engagement, c inbox.Change) Engagement {
	before := e.Versioned
	switch p := c.Payload.(type) {
	case *engagementv1.EngagementPut:
		e = Engagement{
			Liked: p.GetLiked(), Bookmarked: p.GetBookmarked(), WatchedSeconds: p.GetWatchedSeconds(),
			Versioned: Versioned{CreatedAt: cmp.Or(timeOf(p.GetCreatedAt()), &c.Event.OccurredAt)},
		}
	case *engagementv1.EngagementDeleted:
		e = Engagement{Versioned: Versioned{DeletedAt: cmp.Or(timeOf(p.GetDeletedAt()), &c.Event.OccurredAt)}}
	case projection.Lost:
		e = Engagement{Versioned: Versioned{DeletedAt: &p.AsOf}}
	case Engagement:
		if e = p; p.DeletedAt != nil {
			e = Engagement{Versioned: Versioned{DeletedAt: p.DeletedAt}} // the row that the event would have made
		}
	}
	e.UserID, e.VideoID, _ = parseEngagementID(c.Event.AggregateID) // checked by Decode
	e.Versioned = before.moved(c, e.CreatedAt, e.DeletedAt)
	return e
}

// Snapshot returns the owner's state as a change.
func (a engagements) Snapshot(e Engagement) inbox.Change {
	return snapshot(inbox.Put, e, engagementType, e.id(), a.Position(e))
}

// Fetch calls the owner's GetEngagementRows. All ids must belong to one user: a list requires
// engagements of one user only, countedReader asks for one user at a time, and Incomplete returns
// ids of one user.
func (a engagements) Fetch(ctx context.Context, ids []string, timeout time.Duration,
) (found []Engagement, epoch int64, at time.Time, err error) {
	if err := named(ids, isCanonicalEngagement); err != nil {
		return nil, 0, at, err
	}
	users, videos := pairs(ids)
	if slices.ContainsFunc(users, func(user string) bool { return user != users[0] }) {
		// The owner would not know those of the others, and the caller would take them for lost.
		return nil, 0, at, fmt.Errorf("owner's engagements: %d ids are of several users", len(ids))
	}
	resp, err := projection.Call(ctx, timeout, a.owner.GetEngagementRows,
		&replicationv1.GetEngagementRowsRequest{UserId: users[0], VideoIds: videos})
	if err != nil {
		return nil, 0, at, fmt.Errorf("owner's engagements: %w", err)
	}
	for _, p := range resp.GetEngagements() {
		id := p.GetUserId() + ":" + p.GetVideoId()
		user, video, err := parseEngagementID(id)
		if err != nil || !slices.Contains(ids, id) {
			return nil, 0, at, fmt.Errorf("%w: got engagement %q, which was not asked for", consistency.ErrOwnerUnavailable, id)
		}
		e, err := ownedEngagement(p, user, video)
		if err != nil {
			return nil, 0, at, err
		}
		found = append(found, e)
	}
	return found, resp.GetEpoch(), asOf(resp), nil
}

// List calls the owner's ListEngagementRows.
func (a engagements) List(ctx context.Context, from string, timeout time.Duration) (page projection.OwnersPage[Engagement], err error) {
	resp, err := projection.Call(ctx, timeout, a.owner.ListEngagementRows, &replicationv1.ListEngagementRowsRequest{From: from})
	if err != nil {
		return page, unlisted(err)
	}
	return pageOf(resp, resp.GetEngagements(), func(p *videov1.Engagement) (Engagement, error) {
		user, video, err := parseEngagementID(p.GetUserId() + ":" + p.GetVideoId())
		if err != nil {
			return Engagement{}, fmt.Errorf("%w: %w", consistency.ErrOwnerUnavailable, err)
		}
		return ownedEngagement(p, user, video)
	})
}

// ownedEngagement reads the owner's answer about this user's engagement with this video.
func ownedEngagement(p *videov1.Engagement, user, video uuid.UUID) (Engagement, error) {
	id := engagementID(user, video)
	if p.GetUserId()+":"+p.GetVideoId() != id {
		return Engagement{}, fmt.Errorf("%w: asked for engagement %s, got %q of %q",
			consistency.ErrOwnerUnavailable, id, p.GetVideoId(), p.GetUserId())
	}
	row, err := ownedVersion(p, engagementRevision)
	if err != nil {
		return Engagement{}, fmt.Errorf("owner's engagement %s: %w", id, err)
	}
	return Engagement{
		UserID: user, VideoID: video, Liked: p.GetLiked(), Bookmarked: p.GetBookmarked(), WatchedSeconds: p.GetWatchedSeconds(),
		Versioned: row,
	}, nil
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

func isEngagementID(id string) bool {
	_, _, err := parseEngagementID(id)
	return err == nil
}
