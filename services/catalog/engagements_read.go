package catalog

import (
	"cmp"
	"context"
	"strings"

	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
)

// EngagementQuery selects engagements.
type EngagementQuery struct {
	UserID string // a UUID
	// PageSize is at most 200; 0 means 50.
	PageSize int
	// PageToken is the field Next of the previous page, for the same user.
	PageToken string
	// Caller must be allowed to act for the user.
	Caller auth.Principal
	// Found is as in Query.
	Found problem.Violations
}

// check validates q and sets its defaults. user is the user of q. before is the last video of the
// previous page.
func (q *EngagementQuery) check() (user, before uuid.UUID, err error) {
	var bad problem.Violations
	bad.Merge(q.Found)
	user = bad.UUID("user_id", q.UserID)
	q.PageSize = cmp.Or(q.PageSize, rest.DefaultPageSize)
	rest.CheckPageSize(q.PageSize, &bad)
	before = rest.ParsePageToken(q.PageToken, q.filter(user), &bad)
	err = bad.Err()
	if err == nil && !q.Caller.MayActFor(user) {
		err = auth.Denied("These engagements belong to another user.")
	}
	return user, before, err
}

func (q *EngagementQuery) filter(user uuid.UUID) string { return q.Caller.Scope() + user.String() }

// EngagementPage is one page of engagements. Next and Stale are as in Page.
type EngagementPage struct {
	Engagements []Engagement                 `json:"engagements"`
	Next        string                       `json:"next_page_token"`
	Source      Source                       `json:"source"`
	Stale       []consistency.StaleAggregate `json:"stale,omitempty"`
}

// EngagementRequirement returns the freshness that q requires. Of the positions in q's token, only
// the positions of engagements count.
func EngagementRequirement(q consistency.Request) (consistency.Requirement, error) {
	required, err := q.Requirement(engagementType, isCanonicalEngagement)
	return required, problemOf(err)
}

// isCanonicalEngagement is isCanonical for an engagement.
func isCanonicalEngagement(id string) bool {
	user, video, err := parseEngagementID(id)
	return err == nil && engagementID(user, video) == id
}

// ListEngagements returns one page of a user's engagements that are not deleted, newest video
// first. Of the positions in required, only the positions of this user's engagements count.
// ListEngagements fails with PERMISSION_DENIED unless the caller may act for the user. For the rest
// see [Service.List].
func (s *Service) ListEngagements(ctx context.Context, q EngagementQuery, required consistency.Requirement) (EngagementPage, error) {
	refuseFullyConsistent(required, &q.Found)
	user, before, err := q.check()
	if err != nil {
		return EngagementPage{}, err
	}
	required = required.Filter(func(id string) bool { return strings.HasPrefix(id, user.String()+":") })
	page := engagementPage{engagementView: engagementView{s, q.Caller}, user: user, before: before, limit: q.PageSize + 1}
	outcome, stale, err := s.projector.engagements.List(ctx, s.reader, s.writer, required, &page)
	if err != nil {
		return EngagementPage{}, problemOf(err)
	}
	found, next := rest.CutPage(page.engagements, q.PageSize, func(e Engagement) uuid.UUID { return e.VideoID }, q.filter(user))
	return EngagementPage{Engagements: found, Next: next, Source: sourceOf(outcome), Stale: stale}, nil
}

// engagementView is the projection.View of the engagements of the caller's tenant.
type engagementView struct {
	service *Service
	caller  auth.Principal
}

// Tenant returns the caller's tenant.
func (v engagementView) Tenant() string { return v.caller.Tenant }

// Positions reads the positions of the tenant's engagements.
func (v engagementView) Positions(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error) {
	return engagements{db: v.service.db}.positions(ctx, scopeOf(v.caller), wanted)
}

// engagementPage is the projection.Page of one ListEngagements.
type engagementPage struct {
	engagementView

	user, before uuid.UUID
	limit        int
	engagements  []Engagement
}

// Read reads the page.
func (p *engagementPage) Read(ctx context.Context, positions []consistency.Position) (reached int, err error) {
	p.engagements, reached, err = listEngagements(ctx, p.service.db, scopeOf(p.caller), p.user, p.before, p.limit, positions)
	return reached, err
}
