package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/txn"
)

// FetchRequired returns the owner's state of an aggregate, for a reader of the given tenant.
// required concerns this aggregate only. The error is consistency.ErrAhead if the owner's state
// does not meet required. The error is ErrUnknown if the owner does not know the aggregate, and
// required either is empty or has a position of an earlier epoch than the owner's epoch. In the
// second case the owner has lost all writes up to that position. An aggregate of another tenant
// counts as unknown, because a token does not prove that its bearer may see the aggregates that the
// token names.
func (p *Projection[S]) FetchRequired(ctx context.Context, tenant, id string, required consistency.Requirement) (row S, err error) {
	row, epoch, _, err := p.fetch(ctx, id, consistency.FetchTimeout)
	at := consistency.Position{AggregateType: p.aggregate.Type(), AggregateID: id, Epoch: epoch}
	switch {
	case err != nil && !errors.Is(err, ErrUnknown):
		return row, err
	case err == nil && p.tenant(row) != tenant:
		err = ErrUnknown
	case err == nil:
		at = p.position(row)
	}
	if len(required.Unmet(at)) > 0 {
		err = consistency.ErrAhead
	}
	if err != nil {
		row = *new(S)
	}
	return row, err
}

// fetch is the aggregate's Fetch for one id. The error is ErrUnknown if the owner does not know the
// aggregate. epoch and asOf hold in that case, too.
func (p *Projection[S]) fetch(ctx context.Context, id string, timeout time.Duration) (row S, epoch int64, asOf time.Time, err error) {
	rows, epoch, asOf, err := p.aggregate.Fetch(ctx, []string{id}, timeout)
	if err == nil && len(rows) == 0 {
		err = ErrUnknown
	}
	if err != nil {
		return row, epoch, asOf, fmt.Errorf("%s %s: %w", p.aggregate.Type(), id, err)
	}
	return rows[0], epoch, asOf, nil
}

// fetchAll is the aggregate's Fetch. If the owner knows none of the ids, fetchAll returns no rows and no
// error.
func (p *Projection[S]) fetchAll(ctx context.Context, ids []string, timeout time.Duration,
) (rows []S, epoch int64, asOf time.Time, err error) {
	rows, epoch, asOf, err = p.aggregate.Fetch(ctx, ids, timeout)
	if errors.Is(err, ErrUnknown) {
		return nil, epoch, asOf, nil
	}
	return rows, epoch, asOf, err
}

// tenant returns the tenant of the owner's state.
func (p *Projection[S]) tenant(row S) string { return p.aggregate.Snapshot(row).Event.Tenant() }

// position returns the position of the owner's state.
func (p *Projection[S]) position(row S) consistency.Position {
	return consistency.PositionOf(p.aggregate.Snapshot(row).Event)
}

// View is the part of the table that a reader may see: the rows of one tenant.
type View interface {
	// Tenant returns the reader's tenant. The positions that a reader requires may name aggregates
	// of other tenants.
	Tenant() string
	// Positions is as in consistency.Projection, for aggregates of the reader's tenant only.
	Positions(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error)
}

// Page is one page of a list of the view's rows. It keeps the rows of its last Read.
type Page interface {
	View
	// Read reads the page, and counts the positions that the table has reached in the
	// page's own snapshot.
	Read(ctx context.Context, positions []consistency.Position) (reached int, err error)
}

// Reader is a consistency.Reader, or one that requires more of each read.
type Reader interface {
	Read(ctx context.Context, required consistency.Requirement, q consistency.Query) (consistency.Outcome, error)
}

// List reads page until the table has reached the positions of required. If the table does not
// reach them within required's wait, List fetches the owner's state, writes the state with w, and
// reads the page again. stale lists the positions that the page may lack. It is empty unless
// required allows stale data.
func (p *Projection[S]) List(ctx context.Context, r Reader, w *txn.Writer, required consistency.Requirement, page Page,
) (outcome consistency.Outcome, stale []consistency.StaleAggregate, err error) {
	outcome, err = r.Read(ctx, required, listQuery[S]{p, w, required, page})
	if err != nil || outcome != consistency.Stale {
		return outcome, nil, err
	}
	// The page is read after the stale positions were found. So the page lacks at most these
	// positions.
	if stale, err = unmet(ctx, page, required); err == nil {
		_, err = page.Read(ctx, required.Positions())
	}
	return outcome, stale, err
}

// unmet returns the positions of required that the table has not reached, as far as the view's
// reader may see.
func unmet(ctx context.Context, view View, required consistency.Requirement) ([]consistency.StaleAggregate, error) {
	found, err := view.Positions(ctx, required.Positions())
	if err != nil {
		return nil, err
	}
	return required.Unmet(found...), nil
}

// listQuery is the consistency.Query of a page.
type listQuery[S any] struct {
	*Projection[S]

	writer   *txn.Writer
	required consistency.Requirement
	page     Page
}

// ReadProjection reads the page.
func (q listQuery[S]) ReadProjection(ctx context.Context) (consistency.Freshness, error) {
	reached, err := q.page.Read(ctx, q.required.Positions())
	if reached < len(q.required.Positions()) {
		return consistency.Behind, err
	}
	return consistency.Reached, err
}

// FetchFromOwner writes the owner's state to the table, and reads the page.
func (q listQuery[S]) FetchFromOwner(ctx context.Context) (err error) {
	if q.required, err = q.BringForward(ctx, q.writer, q.required, q.page); err != nil {
		return err
	}
	found, err := q.ReadProjection(ctx)
	if err == nil && found != consistency.Reached {
		err = consistency.ErrOwnerUnavailable // the table does not show the rows that were written to it
	}
	return err
}

// BringForward brings the table up to required with the owner's state, which it writes with w. It
// makes one call, for any number of aggregates, and writes nothing if the owner's state does not meet
// required: the error is then consistency.ErrAhead. left is required without the aggregates that the
// owner has lost. If the database refuses a row, BringForward writes the others, and the error wraps
// consistency.ErrNotTaken. The log has a line about the row, as in Replace.
func (p *Projection[S]) BringForward(ctx context.Context, w *txn.Writer, required consistency.Requirement, view View,
) (left consistency.Requirement, err error) {
	stale, err := unmet(ctx, view, required)
	if err != nil || len(stale) == 0 {
		return required, err
	}
	ids := make([]string, len(stale))
	for i, s := range stale {
		ids[i] = s.ID
	}
	rows, epoch, asOf, err := p.fetchAll(ctx, ids, consistency.FetchTimeout)
	if err != nil {
		return left, err
	}
	rows = slices.DeleteFunc(rows, func(row S) bool { return p.tenant(row) != view.Tenant() })
	// An aggregate that the owner does not know counts as version 0 of the owner's epoch. This
	// meets a required position of an earlier epoch.
	at := make(map[string]consistency.Position, len(ids))
	for _, id := range ids {
		at[id] = consistency.Position{AggregateType: p.Type(), AggregateID: id, Epoch: epoch}
	}
	for _, row := range rows {
		has := p.position(row)
		at[has.AggregateID] = has
	}
	fetched := required.Filter(func(id string) bool { return slices.Contains(ids, id) })
	if len(fetched.Unmet(slices.Collect(maps.Values(at))...)) > 0 {
		return left, consistency.ErrAhead
	}
	left = required.Filter(func(id string) bool { has, fetched := at[id]; return !fetched || has.Version > 0 })
	if len(rows) == 0 {
		return left, nil
	}
	return left, p.take(ctx, w, rows, asOf)
}

// take writes the owner's rows as of the time asOf for a reader: all in one transaction, or each in its own if a
// row is at fault.
func (p *Projection[S]) take(ctx context.Context, w *txn.Writer, rows []S, asOf time.Time) error {
	var notTaken error
	_, err := inParts(rows, len(rows), func(part []S) ([]string, error) {
		return p.write(ctx, w, strings.Join(p.snapshots(part...).ids(), " "), inbox.AdoptChanges, part, asOf)
	}, func(row S, cause error) {
		notTaken = fmt.Errorf("%w: %w", consistency.ErrNotTaken, cause)
		p.left(ctx, "owner's row cannot be written for its readers", p.aggregate.Snapshot(row).Event.AggregateID, cause)
	})
	return cmp.Or(err, notTaken)
}
