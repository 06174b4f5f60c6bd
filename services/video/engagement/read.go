package engagement

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/services/video/aggregate"
)

// Get returns an engagement that is not deleted. asOf is the state of the database that the answer
// shows, and is also set with a not-found error. The caller must be allowed to act for the user.
func (s *Service) Get(
	ctx context.Context, caller auth.Principal, user, video uuid.UUID,
) (e Engagement, asOf aggregate.AsOf, err error) {
	if err := aggregate.CheckOwner(caller, user); err != nil {
		return Engagement{}, aggregate.AsOf{}, err
	}
	e, asOf, err = selectEngagement(ctx, s.db, aggregate.Scope(caller), user, video)
	if err != nil {
		return Engagement{}, aggregate.AsOf{}, fmt.Errorf("get engagement: %w", err)
	}
	return e, asOf, e.Check(aggregateType)
}

// GetMany returns a user's engagements with the named videos, including tombstones. Like Get, it
// also returns the state of the database that the answer shows. It is for replicas.
func (s *Service) GetMany(ctx context.Context, user uuid.UUID, videos []string) ([]Engagement, aggregate.AsOf, error) {
	if err := aggregate.CheckIDs("video_ids", videos); err != nil {
		return nil, aggregate.AsOf{}, err
	}
	found, asOf, err := selectWith(ctx, s.db, user, videos)
	if err != nil {
		return nil, aggregate.AsOf{}, fmt.Errorf("get engagements: %w", err)
	}
	return found, asOf, nil
}

// ListRows lists the engagements of all users, including tombstones. The list begins at the id
// from. Replicas fill their copies with these rows. table is the table that NewTable returns.
func ListRows(ctx context.Context, table *reconcile.Table, from string) (reconcile.Listing[Engagement], error) {
	return reconcile.List(ctx, table, selected, from, Engagement.id)
}

// List returns up to size (1 to 200) of a user's engagements that are not deleted, newest video first.
// next is the token for the next page. It is empty on the last page, and valid for this caller only.
// The caller must be allowed to act for the user. found is as for Put.
func (s *Service) List(
	ctx context.Context, caller auth.Principal, user uuid.UUID, size int, token string, found problem.Violations,
) (page []Engagement, next string, err error) {
	filter := caller.Scope() + user.String()
	rest.CheckPageSize(size, &found)
	before := rest.ParsePageToken(token, filter, &found)
	if err := cmp.Or(found.Err(), aggregate.CheckOwner(caller, user)); err != nil {
		return nil, "", err
	}
	page, err = selectPage(ctx, s.db, aggregate.Scope(caller), user, before, size+1)
	if err != nil {
		return nil, "", fmt.Errorf("list engagements: %w", err)
	}
	page, next = rest.CutPage(page, size, func(e Engagement) uuid.UUID { return e.VideoID }, filter)
	return page, next, nil
}
