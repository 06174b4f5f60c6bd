package catalog

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/pkg/eventing/consistency"
)

// withEngagements adds to required the positions of engagements that q's token has, because the
// counters of a video are sums over engagements. err is the error of required.
func withEngagements(required consistency.Requirement, q consistency.Request, err error) (consistency.Requirement, error) {
	if err != nil {
		return required, err
	}
	counted, err := EngagementRequirement(q)
	return required.And(counted), err
}

// reachEngagements brings those engagements of required into the read model that the counters of
// the answer include. It waits for their events, or takes the owner's state, as ListEngagements
// does. shown reports whether the answer may show a video. The positions of users for whom the
// caller may not act do not count: otherwise, the answer to a forged token would tell whether
// another user has an engagement.
//
// left is the part of required that concerns videos, with the rest of the wait. stale lists the
// engagements that the counters may lack. It is empty unless required allows stale data.
func (s *Service) reachEngagements(
	ctx context.Context, caller auth.Principal, required consistency.Requirement, shown func(video uuid.UUID) bool,
) (left consistency.Requirement, stale []consistency.StaleAggregate, err error) {
	left = required.Filter(func(id string) bool { return !isEngagementID(id) })
	counted := required.Filter(func(id string) bool {
		user, video, err := parseEngagementID(id)
		return err == nil && shown(video) && caller.MayActFor(user)
	})
	// The owner is asked for the engagements of one user at a time. Only a caller that may act for
	// all users has several.
	for len(counted.Positions()) > 0 {
		user, _, _ := strings.Cut(counted.Positions()[0].AggregateID, ":")
		isUsers := func(id string) bool { return strings.HasPrefix(id, user+":") }
		began := time.Now()
		_, missing, err := s.projector.engagements.List(ctx, s.reader, s.writer, counted.Filter(isUsers), countedPage{s, caller})
		if err != nil {
			return left, nil, err
		}
		stale = append(stale, missing...)
		counted = counted.Filter(func(id string) bool { return !isUsers(id) }).After(time.Since(began))
		left = left.After(time.Since(began))
	}
	return left, stale, nil
}

// countedPage is the projection.Page of reachEngagements. It shows no rows.
type countedPage struct {
	service *Service
	caller  auth.Principal
}

// Tenant returns the caller's tenant.
func (p countedPage) Tenant() string { return p.caller.Tenant }

// Positions reads the positions of the tenant's engagements.
func (p countedPage) Positions(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error) {
	return engagements{db: p.service.db}.positions(ctx, scopeOf(p.caller), wanted)
}

// Read counts the positions that the read model has reached.
func (p countedPage) Read(ctx context.Context, positions []consistency.Position) (reached int, err error) {
	found, err := p.Positions(ctx, positions)
	at := make(map[string]consistency.Position, len(found))
	for _, has := range found {
		at[has.AggregateID] = has
	}
	for _, wanted := range positions {
		if has := at[wanted.AggregateID]; wanted.Reached(has.Epoch, has.Version) {
			reached++
		}
	}
	return reached, err
}
