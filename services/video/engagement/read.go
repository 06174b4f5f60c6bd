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
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/aggregate"
)

// Get returns an engagement as it is now; a deleted one only when tombstones are asked
// for. The result, also a not-found error, is of the database's state asOf. The caller may act
// for the user, or is another service of the system.
func (s *Service) Get(
	ctx context.Context, caller auth.Principal, user, video uuid.UUID, includeDeleted bool,
) (e Engagement, asOf aggregate.AsOf, err error) {
	if err := checkReader(caller, user); err != nil {
		return Engagement{}, aggregate.AsOf{}, err
	}
	e, asOf, err = selectEngagement(ctx, s.db, user, video)
	if err != nil {
		return Engagement{}, aggregate.AsOf{}, fmt.Errorf("get engagement: %w", err)
	}
	if e.DeletedAt != nil && includeDeleted {
		return e, asOf, nil
	}
	return e, asOf, e.Check(aggregateType, 0)
}

// GetMany returns a user's engagements with the named videos, tombstones included, as
// they are now, with the state and the callers as in Get.
func (s *Service) GetMany(
	ctx context.Context, caller auth.Principal, user uuid.UUID, videos []string,
) ([]Engagement, aggregate.AsOf, error) {
	if err := cmp.Or(aggregate.CheckVideoIDs(videos), checkReader(caller, user)); err != nil {
		return nil, aggregate.AsOf{}, err
	}
	found, asOf, err := selectWith(ctx, s.db, user, videos)
	if err != nil {
		return nil, aggregate.AsOf{}, fmt.Errorf("get engagements: %w", err)
	}
	return found, asOf, nil
}

// ListRows lists the engagements in table, which is that of NewTable, as a reader fills its
// copy with them.
func ListRows(ctx context.Context, table *reconcile.Table, from string) (page reconcile.Listing[*videov1.Engagement], err error) {
	found, err := reconcile.List(ctx, table, selected, from, Engagement.id)
	page = reconcile.Listing[*videov1.Engagement]{Answer: found.Answer, Next: found.Next, Estimate: found.Estimate}
	for _, e := range found.Rows {
		page.Rows = append(page.Rows, e.read())
	}
	return page, err
}

// Filter selects the engagements of a list.
type Filter struct {
	UserID         uuid.UUID // uuid.Nil is every user
	IncludeDeleted bool
}

// List returns up to size (1 to 200) engagements by user, each user's newest video
// first, and a token for the page behind them, which is empty on the last, and good for this
// caller only. Callers are as in Get; a list of all users is for those that may act for all.
func (s *Service) List(
	ctx context.Context, caller auth.Principal, f Filter, size int, token string,
) (page []Engagement, next string, err error) {
	var found problem.Violations
	filter := caller.Scope() + fmt.Sprint(f)
	rest.CheckPageSize(size, &found)
	before := rest.ParsePageToken[[2]uuid.UUID](token, filter, &found)
	if err := cmp.Or(found.Err(), checkReader(caller, f.UserID)); err != nil {
		return nil, "", err
	}
	page, err = selectPage(ctx, s.db, f, before, size+1)
	if err != nil {
		return nil, "", fmt.Errorf("list engagements: %w", err)
	}
	page, next = rest.CutPage(page, size, func(e Engagement) [2]uuid.UUID { return [2]uuid.UUID{e.UserID, e.VideoID} }, filter)
	return page, next, nil
}

// checkReader returns an error unless the caller may read what belongs to that user; uuid.Nil
// stands for all users.
func checkReader(caller auth.Principal, user uuid.UUID) error {
	if caller.Kind == auth.Service {
		return nil
	}
	return aggregate.CheckOwner(caller, user)
}
