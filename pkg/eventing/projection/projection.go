// Package projection keeps a projection of another service's aggregates. A projection is a table
// with one row, or tombstone, for each aggregate.
//
//	events ─▶ inbox.Consumer ─▶ Projection ─▶ table ─▶ readers, as fresh as they require
//	                            │    ▲              │ not there in time
//	                        gap └─ owner ───────────┘
//
// A service implements [Aggregate] for each type, with its SQL, its events, and the call to the
// owner. [Projection] does the rest. Package inbox has the rule by which a row moves, and package
// consistency the requirements of readers. Both need the owner's state. This package fetches that
// state, applies it by the rule inbox.Adopt, and notifies the readers that wait for it. If the
// owner has lost a row's history, the owner's state replaces the row, whatever the versions are,
// and the divergence is reported.
package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/instrument"
	"example.com/lockstep/pkg/eventing/txn"
)

const (
	// repairTimeout bounds a call to the owner for which no reader waits. So it is longer than
	// consistency.FetchTimeout.
	repairTimeout = 5 * time.Second
	// writeTimeout bounds a repair's transaction, waits for locks included.
	writeTimeout = 5 * time.Second
)

// ErrUnknown means that the owner has answered that it does not know the aggregate.
var ErrUnknown = errors.New("owner does not know it")

// Aggregate is one type of aggregate that a service projects. S is the type of the table's rows,
// and of the owner's rows. The method Apply turns a change with the payload Lost into a tombstone.
type Aggregate[S any] interface {
	inbox.Rows[S]

	// Type is the aggregate type of the events.
	Type() string
	// Decode returns the change that e describes, as inbox.Handler documents it.
	Decode(e eventing.Event) (inbox.Change, error)
	// Snapshot returns the owner's state as a change.
	Snapshot(row S) inbox.Change
	// Fetch returns aggregates or their tombstones as the owner has them, up to
	// consistency.MaxPositions in one call. It leaves out aggregates that the owner does not know.
	// Ids of one call are those of one read or of one Incomplete. Fetch refuses others if the owner cannot be asked
	// for them together, as for those of several users.
	// The answer contains everything that the owner had committed by the time asOf. A zero asOf
	// means that the time is unknown. epoch is the owner's epoch, or 0 if that is unknown. epoch and
	// asOf hold for all ids, including those that are left out. The error is
	// consistency.ErrOwnerUnavailable, the error of the caller's ctx, or a permanent error
	// (eventing.Permanent) for text that cannot be an id of the owner, as a dead letter may have it.
	// An error that wraps ErrUnknown means that the owner knows none of the ids, and has not said
	// its epoch.
	Fetch(ctx context.Context, ids []string, timeout time.Duration) (rows []S, epoch int64, asOf time.Time, err error)
	// List returns a page of the owner's aggregates, tombstones included, that begins at the id
	// from. An empty from means the first page. It returns the errors of Fetch, or a permanent error
	// (eventing.Permanent) if the owner's release has no such listing.
	List(ctx context.Context, from string, timeout time.Duration) (OwnersPage[S], error)
	// Incomplete returns the ids of up to limit rows that are incomplete (inbox.Completeness) and of
	// a lower revision than this build's. The ids are in the order of the keys, and all come behind
	// the id in the argument after. One Fetch must be able to fetch all of them.
	Incomplete(ctx context.Context, after string, limit int) (ids []string, err error)
	// CountIncomplete counts up to limit incomplete rows, of any revision.
	CountIncomplete(ctx context.Context, limit int) (int64, error)
}

// Projection is the projection of one type of aggregate. It is an inbox.Handler.
type Projection[S any] struct {
	aggregate Aggregate[S]
	writer    *txn.Writer // writes owner's states
	waiters   *consistency.Waiters
	log       *slog.Logger
	// partialLog bounds the lines about changes that this build understands only in part.
	partialLog rate.Sometimes
	// oddLog bounds the lines about rows that cannot be written.
	oddLog rate.Sometimes
}

// New returns a projection whose repairs write with writer. All projections on one pool share a
// writer, so that repairs that wait for locks leave a connection to the consumer. waiters are the
// readers that wait for its rows. log gets a line for each row that had another history than its
// owner.
func New[S any](writer *txn.Writer, aggregate Aggregate[S], waiters *consistency.Waiters, log *slog.Logger) *Projection[S] {
	p := &Projection[S]{
		aggregate: aggregate, writer: writer, waiters: waiters, log: log,
		partialLog: rate.Sometimes{Interval: time.Minute},
		oddLog:     rate.Sometimes{First: oddLines, Interval: time.Minute},
	}
	for _, c := range []metric.Int64Counter{divergences, partialChanges, completedRows} {
		instrument.Begin(c, p.ofType())
	}
	return p
}

// Decode calls the aggregate's Decode, and reports a change that has more than this build
// understands.
func (p *Projection[S]) Decode(e eventing.Event) (inbox.Change, error) {
	c, err := p.aggregate.Decode(e)
	if err == nil {
		p.unknownSeen(c)
	}
	return c, err
}

// Apply applies events, as they arrive or when an operator redrives them.
func (p *Projection[S]) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	return inbox.ApplyChanges(ctx, tx, p.aggregate, changes)
}

// Committed notifies the waiting readers.
func (p *Projection[S]) Committed(ctx context.Context, moved ...consistency.Position) {
	p.waiters.Notify(ctx, moved...)
}

// Repair gives e's aggregate the owner's state, in a transaction of its own. It asks the owner
// before the transaction, so that a slow owner holds no lock. If another transaction holds the row's
// lock, the error is txn.ErrLocked after two seconds, and no connection waits longer than the
// Writer's limit. If the owner does not have e, the error is inbox.ErrLost if the owner has lost e,
// and inbox.ErrBehind if the answer may come from a replica that lags. If the owner does not know the
// aggregate, the error is inbox.ErrBehind while inbox.MayLag holds, and permanent afterwards.
func (p *Projection[S]) Repair(ctx context.Context, e eventing.Event) error {
	row, _, asOf, err := p.fetch(ctx, e.AggregateID, repairTimeout)
	switch {
	case errors.Is(err, ErrUnknown) && inbox.MayLag(e, asOf):
		return fmt.Errorf("%w: %w", inbox.ErrBehind, err)
	case errors.Is(err, ErrUnknown):
		return eventing.Permanent(err)
	case err != nil:
		return err
	}
	if _, err := p.write(ctx, p.writer, e.Key(), inbox.AdoptChanges, []S{row}, asOf); err != nil {
		return err
	}
	return inbox.Has(p.aggregate.Position(row), e, asOf)
}

// ownerState is the owner's state of some aggregates. changes has the state as changes, in the
// order of the ids, and outcomes has the outcome of each change.
type ownerState struct {
	changes  []inbox.Change
	outcomes []inbox.Outcome
}

func (p *Projection[S]) snapshots(rows ...S) (owned ownerState) {
	for _, row := range rows {
		owned.changes = append(owned.changes, p.aggregate.Snapshot(row))
	}
	owned.sort()
	return owned
}

func (o ownerState) sort() {
	slices.SortFunc(o.changes, func(a, b inbox.Change) int { return strings.Compare(a.Event.AggregateID, b.Event.AggregateID) })
}

func (o ownerState) ids() (ids []string) {
	for _, c := range o.changes {
		ids = append(ids, c.Event.AggregateID)
	}
	return ids
}

// written reports whether the change i was written over its row.
func (o ownerState) written(i int) bool {
	return o.outcomes[i] == inbox.Diverged || o.outcomes[i] == inbox.Applied
}

// adopted reports divergences and notifies the waiting readers, after the commit. It returns the
// ids of the rows that were written.
func (p *Projection[S]) adopted(ctx context.Context, owned ownerState) (written []string) {
	var moved []consistency.Position
	for i, outcome := range owned.outcomes {
		e := owned.changes[i].Event
		if outcome == inbox.Diverged {
			p.diverged(ctx, e)
		}
		if owned.written(i) {
			moved, written = append(moved, consistency.PositionOf(e)), append(written, e.AggregateID)
		}
	}
	if len(moved) > 0 {
		p.waiters.Notify(ctx, moved...)
	}
	return written
}

// diverged reports that a row had another history than its owner and was replaced. e is the event
// of the owner's state.
func (p *Projection[S]) diverged(ctx context.Context, e eventing.Event) {
	divergences.Add(ctx, 1, p.ofType())
	p.log.ErrorContext(ctx, "row had a history that its owner has lost: it was replaced by the owner's state",
		e.LogAttrs()...)
}

// unknownSeen reports c if it has more than this build understands. It counts a change each time
// the change is decoded, and logs at most one line a minute.
func (p *Projection[S]) unknownSeen(c inbox.Change) {
	if !c.Partial {
		return
	}
	ctx := c.Event.InTrace(context.Background()) // Decode has no context
	partialChanges.Add(ctx, 1, p.ofType())
	p.partialLog.Do(func() {
		p.log.WarnContext(ctx, "event has more than this build understands: its row stays incomplete until a newer build runs",
			append(c.Event.LogAttrs(), "revision", c.Revision)...)
	})
}

// oddLines is a number of rows that cannot be read or written. The first ones get a log line each. Later
// ones get one line a minute in all, because a table can refuse all rows.
const oddLines = 100

// left logs that a row is left as it is.
func (p *Projection[S]) left(ctx context.Context, message, id string, err error) {
	p.oddLog.Do(func() {
		p.log.ErrorContext(ctx, message, "aggregate_type", p.Type(), "aggregate_id", id, "error", err)
	})
}

func (p *Projection[S]) ofType() metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("aggregate_type", p.aggregate.Type()))
}

var (
	meter       = instrument.For("example.com/lockstep/pkg/eventing/projection")
	divergences = meter.Counter("replica.divergences", "{row}",
		"Rows that had a history that their owner has lost, and were replaced by the owner's state")
	partialChanges = meter.Counter("replica.partial_changes", "{change}",
		"Decoded changes that have more than this build understands")
	completedRows = meter.Counter("replica.completed_rows", "{row}",
		"Rows that were incomplete and were brought up to date with their owner")
	incompleteRows = meter.Set("replica.incomplete_rows", "{row}",
		"Rows that lack a part of their owner's state, as of the last pass, up to 10,000")
)
