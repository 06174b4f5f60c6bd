package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/pkg/eventing/txn"
)

const (
	// partRows bounds the rows, and with them the locks, of one transaction.
	partRows = 32
	// maxLockedRows is a number of rows. If that many are locked, one after the other, a repair ends. The
	// wait for each takes two seconds.
	maxLockedRows = 3
)

// Type returns the type of the aggregate.
func (p *Projection[S]) Type() string { return p.aggregate.Type() }

// Replace implements reconcile.Model. It asks the owner for each row before the transaction that
// writes the row, as in Repair. Of the rows of a transaction it writes those that standing returns, and
// whose position is the one in seen.
//
// If the owner does not know a row, the row becomes a tombstone of its present version, and is not
// removed. Readers are told that the aggregate is gone, whether there is a tombstone or no row. But
// the broker may still have events of the lost history, for as long as it keeps messages. With a
// tombstone such events are stale. Without a row such events would create the aggregate again. If
// the owner later puts the aggregate again, or gets it back by another restore, the aggregate
// replaces the tombstone by the usual rules.
//
// A row that cannot be read or written is skipped, because the fault is in that row and must not
// hold up other rows. So is a row that another transaction has locked for two seconds. The log has a
// line about each of the first 100 such rows of a Projection, and then one line a minute.
func (p *Projection[S]) Replace(ctx context.Context, by audit.Actor, seen []reconcile.Row, standing reconcile.Standing,
) (replaced []string, err error) {
	return inParts(seen, partRows, func(part []reconcile.Row) ([]string, error) {
		return p.replace(ctx, by, part, standing)
	}, func(row reconcile.Row, err error) {
		p.left(ctx, "row cannot be repaired", row.ID, err)
	})
}

// inParts splits rows into parts, and calls write for each part as one transaction. most is the
// largest number of rows in a part. inParts returns the ids that write returns. If a row is at fault,
// the part that contains the row is written row by row, and left is called with each such row. If
// maxLockedRows rows are locked, one after the other, the whole table may be locked, and inParts returns
// the error.
func inParts[R any](rows []R, most int, write func([]R) ([]string, error), left func(R, error)) (written []string, err error) {
	lockedRows := 0
	for part := range slices.Chunk(rows, most) {
		ids, err := write(part)
		lockedRows++
		if !errors.Is(err, errRowLocked) {
			lockedRows = 0
		}
		switch {
		case lockedRows >= maxLockedRows && most == 1:
			return written, err
		case isRowsFault(err) && most == 1:
			left(part[0], err)
			continue
		case isRowsFault(err):
			ids, err = inParts(part, 1, write, left)
		}
		if written = append(written, ids...); err != nil {
			return written, err
		}
	}
	return written, nil
}

// errRowLocked is the error of a locked row in Replace and in Complete, which leave such a row as it is.
// Other writes of owner's rows are tried again instead.
var errRowLocked = errors.New("the row is locked")

// leaveLocked makes an error of a locked row one that isRowsFault accepts.
func leaveLocked(err error) error {
	if errors.Is(err, txn.ErrLocked) {
		return fmt.Errorf("%w: %w", errRowLocked, err)
	}
	return err
}

// isRowsFault reports whether a row is the cause of err. The row has a value that Go cannot read, such
// as an infinite time, or the database refuses a value of the owner's row, or the row is locked.
func isRowsFault(err error) bool {
	_, unreadable := errors.AsType[pgx.ScanArgError](err)
	return unreadable || errors.Is(err, errRowLocked) || inbox.Refused(err)
}

func (p *Projection[S]) replace(ctx context.Context, by audit.Actor, seen []reconcile.Row, standing reconcile.Standing,
) (replaced []string, err error) {
	var owned, written ownerState
	var oldest time.Time
	at := map[string]inbox.Position{}
	for _, row := range seen {
		c, asOf, err := p.ownersState(ctx, row)
		if err != nil {
			return nil, err
		}
		if c.Kind == 0 {
			continue
		}
		at[row.ID] = position(row)
		owned.changes = append(owned.changes, c)
		if oldest.IsZero() || asOf.Before(oldest) {
			oldest = asOf
		}
	}
	owned.sort()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = p.writer.Write(ctx, tenant.All(), "", func(tx *txn.Tx) error {
		before, err := p.aggregate.Lock(ctx, tx, owned.ids())
		if err != nil {
			return err
		}
		same, err := standing(ctx, tx, seen)
		if err != nil {
			return err
		}
		written = owned.of(same)
		if written.outcomes, err = inbox.ReplaceChanges(ctx, tx, p.aggregate, written.changes, at, oldest); err != nil {
			return err
		}
		return audit.Write(ctx, tx, "reconcile", by, p.subjects(written, before)...)
	})
	if err != nil {
		return nil, fmt.Errorf("replace rows: %w", leaveLocked(err))
	}
	return p.adopted(ctx, written), nil
}

// of returns the changes of these rows.
func (o ownerState) of(rows []reconcile.Row) (some ownerState) {
	for _, c := range o.changes {
		if slices.ContainsFunc(rows, func(r reconcile.Row) bool { return r.ID == c.Event.AggregateID }) {
			some.changes = append(some.changes, c)
		}
	}
	return some
}

// position returns the position that a row of the projection had when it was found to differ from
// the owner's row.
func position(row reconcile.Row) inbox.Position {
	return inbox.Position{Epoch: row.Epoch, Version: row.Version, Deleted: row.Deleted, EventID: row.EventID, At: row.At}
}

// Lost is the payload of a change of the kind Deleted that comes from no event. At the time AsOf
// the owner did not know the aggregate.
type Lost struct{ AsOf time.Time }

// ownersState returns the owner's state of a row as a change. If the owner does not know the row,
// the change is a tombstone. The change is zero if there is no row to replace, or if the answer may
// be from before the row.
func (p *Projection[S]) ownersState(ctx context.Context, row reconcile.Row) (c inbox.Change, asOf time.Time, err error) {
	owners, _, asOf, err := p.fetch(ctx, row.ID, repairTimeout)
	if err == nil {
		return p.aggregate.Snapshot(owners), asOf, nil
	}
	last := eventing.Event{
		ID: row.EventID, AggregateType: p.aggregate.Type(), AggregateID: row.ID, Epoch: row.Epoch, Version: row.Version, OccurredAt: row.At,
	}
	switch {
	case !errors.Is(err, ErrUnknown):
		return c, asOf, err
	case row.Version == 0 || inbox.MayLag(last, asOf):
		return c, asOf, nil
	}
	return inbox.Change{Kind: inbox.Deleted, Event: last, Payload: Lost{cmp.Or(asOf, time.Now().UTC())}}, asOf, nil
}

// subjects returns an audit subject for each row that was written, with the former row as its
// Record.
func (p *Projection[S]) subjects(owned ownerState, before map[string]S) (subjects []audit.Subject) {
	for i, c := range owned.changes {
		if !owned.written(i) {
			continue
		}
		s := audit.Subject{EventID: c.Event.ID, AggregateType: c.Event.AggregateType, AggregateID: c.Event.AggregateID, Version: c.Event.Version}
		if row, ok := before[s.AggregateID]; ok {
			s.Record = record(row, p.aggregate.Position(row))
		}
		subjects = append(subjects, s)
	}
	return subjects
}

// record returns a row as JSON. A row that JSON cannot express, such as one with a time after the
// year 9999, is kept as text, so that the row can be repaired all the same.
func record(row any, at inbox.Position) json.RawMessage {
	type kept struct {
		Row     any        `json:"row"`
		Epoch   int64      `json:"epoch"`
		Version int64      `json:"version"`
		Deleted bool       `json:"deleted"`
		EventID uuid.UUID  `json:"event_id"`
		At      *time.Time `json:"updated_at,omitempty"`
	}
	k := kept{row, at.Epoch, at.Version, at.Deleted, at.EventID, &at.At}
	text, err := json.Marshal(k)
	if err != nil {
		k.Row, k.At = fmt.Sprintf("%+v", row), nil
		text, _ = json.Marshal(k) //nolint:errchkjson // it has no value any more that JSON cannot express
	}
	return text
}
