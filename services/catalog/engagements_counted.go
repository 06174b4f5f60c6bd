package catalog

import (
	"context"
	"errors"
	"strings"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/pkg/eventing/consistency"
)

// withEngagements adds to required the positions of engagements that its token has, because the
// counters of a video are sums over engagements. err is the error of required.
func withEngagements(required consistency.Requirement, err error) (consistency.Requirement, error) {
	if err != nil {
		return required, err
	}
	return required.With(engagementType, isCanonicalEngagement)
}

// countedReader is a projection.Reader of videos. It requires in addition that the counters include
// those engagements that the reader's token names. Such a read has one wait, and one call to the
// owner for the engagements of each user.
type countedReader struct {
	engagementView

	// required has the positions of the engagements.
	required consistency.Requirement
	// one is the query of the video that is read, or nil for a list.
	one *videoQuery
	// stale has the engagements that the counters may lack, as of the last read.
	stale []consistency.StaleAggregate
}

// counted returns the reader for an answer to caller. one is nil for a list, which may show any
// video. The positions of users for whom the caller may not act do not count. Otherwise, the answer
// to a forged token would tell whether another user has an engagement.
//
// A video with an engagement exists. So if the token has such an engagement and no version of the video,
// counted makes one require version 1, without an epoch. If the owner does not know the video, its answer
// still counts, because the owner's epoch is later than none.
func (s *Service) counted(caller auth.Principal, required consistency.Requirement, one *videoQuery) *countedReader {
	r := &countedReader{engagementView: engagementView{s, caller}, one: one}
	r.required = required.OfType(engagementType).Filter(func(id string) bool {
		user, video, err := parseEngagementID(id)
		return err == nil && (one == nil || one.id == video) && caller.MayActFor(user)
	})
	if one != nil && len(r.required.Positions()) > 0 && len(one.required.Positions()) == 0 {
		one.required = one.required.And(consistency.Position{AggregateType: videoType, AggregateID: one.id.String(), Version: 1})
	}
	return r
}

// Read reads q as consistency.Reader does, with the engagements as a part of what is required.
func (r *countedReader) Read(ctx context.Context, required consistency.Requirement, q consistency.Query) (consistency.Outcome, error) {
	if engaged := r.required.Positions(); len(engaged) > 0 {
		required, q = required.And(engaged...), countedQuery{q, r, required.FullyConsistent()}
	}
	return r.service.reader.Read(ctx, required, q)
}

// look finds the engagements that the read model lacks.
func (r *countedReader) look(ctx context.Context) error {
	found, err := r.Positions(ctx, r.required.Positions())
	r.stale = r.required.Unmet(found...)
	return err
}

// bringForward takes the owner's state of the engagements into the read model, which counts it. The
// owner is asked for the engagements of one user at a time. Only a caller that may act for all users
// has several.
func (r *countedReader) bringForward(ctx context.Context) error {
	rest := r.required
	r.required = rest.Filter(func(string) bool { return false })
	for len(rest.Positions()) > 0 {
		user, _, _ := strings.Cut(rest.Positions()[0].AggregateID, ":")
		isUsers := func(id string) bool { return strings.HasPrefix(id, user+":") }
		left, err := r.service.projector.engagements.BringForward(ctx, r.service.writer, rest.Filter(isUsers), r)
		if err != nil {
			r.required = r.required.And(rest.Positions()...)
			return err
		}
		r.required = r.required.And(left.Positions()...)
		rest = rest.Filter(func(id string) bool { return !isUsers(id) })
	}
	if err := r.look(ctx); err != nil {
		return err
	}
	if len(r.stale) > 0 {
		return consistency.ErrOwnerUnavailable // the read model does not show the rows that were written to it
	}
	return nil
}

// countedQuery is a query of videos together with the engagements that their counters must include.
type countedQuery struct {
	consistency.Query

	reader *countedReader
	// ownersOnly is true if the reader requires full consistency. The videos must then come from the
	// owner, even if the projection has all that is required.
	ownersOnly bool
}

// ReadProjection looks for the engagements first, so that the counters, which are read afterwards,
// include the engagements that were found.
func (q countedQuery) ReadProjection(ctx context.Context) (consistency.Freshness, error) {
	if err := q.reader.look(ctx); err != nil {
		return consistency.Absent, err
	}
	found, err := q.Query.ReadProjection(ctx)
	if found == consistency.Reached && len(q.reader.stale) > 0 && !q.hidesCounters() {
		found = consistency.Behind
	}
	return found, err
}

// hidesCounters reports whether the video that was read last is deleted, so that the answer shows no
// counters.
func (q countedQuery) hidesCounters() bool {
	return q.reader.one != nil && q.reader.one.video.DeletedAt != nil
}

// FetchFromOwner brings the engagements forward, and reads the videos: from the owner, unless the
// projection has reached what is required of them. A deleted video is an answer even if the owner
// refuses to say anything about the engagements.
func (q countedQuery) FetchFromOwner(ctx context.Context) error {
	uncounted := q.reader.bringForward(ctx)
	found, err := q.Query.ReadProjection(ctx)
	if err == nil && (found != consistency.Reached || q.ownersOnly) {
		err = q.Query.FetchFromOwner(ctx)
	}
	switch {
	case err != nil && uncounted != nil && !errors.Is(uncounted, consistency.ErrAhead):
		return uncounted // this error names the cause, an owner that is away; err may only say that no time was left
	case err != nil || q.hidesCounters():
		return err
	}
	return uncounted
}
