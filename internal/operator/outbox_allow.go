package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/operator/backlog"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// errNoRow is wrapped by the error of an id without a row. No event of such an aggregate can follow.
var errNoRow = errors.New("there is no row of this id; ids have small letters")

// leavesGap is the note on an allowed hole for the operator.
const leavesGap = "With a hole allowed, the outbox takes that version: when it arrives, " +
	"consumers see the gap and repair themselves from the owner."

// ofDeleted is a second note, for an aggregate whose row is a tombstone.
const ofDeleted = "It is deleted. If no event can follow the deletion, nothing is to be allowed: " +
	"a reconciliation finds rows that lack the deletion."

func (o Owner) allow(ctx context.Context, s *invocation) error {
	s.confirmFlags()
	kind := s.flags.String("type", "", "")
	err := s.parseSigned()
	switch {
	case err != nil:
		return err
	case len(s.ids) != 1:
		return command.Usagef("want the id of one aggregate")
	case *kind != "" && !slices.Contains(o.Types, *kind):
		return command.Usagef("--type %s: want one of %s", *kind, strings.Join(o.Types, ", "))
	}
	b, err := s.openBacklog(ctx)
	if err != nil {
		return err
	}
	// The row is read before the outbox, because a write between the two reads could otherwise look like a hole.
	name, row, err := o.row(ctx, s, *kind, s.ids[0])
	if err != nil {
		return err
	}
	hole, err := b.PlanAllow(ctx, name, s.ids[0], row.Version)
	if err != nil {
		return err
	}
	result := struct {
		backlog.Hole
		DryRun  bool   `json:"-"` // the JSON has the field allowed instead
		Allowed bool   `json:"allowed"`
		Note    string `json:"note"`
	}{Hole: hole, Note: leavesGap}
	if row.Deleted {
		result.Note += " " + ofDeleted
	}
	e := hole.Newest
	s.planf("%s/%s is at version %d, and its newest event in the outbox is %s of version %d. Versions without an event: %d.",
		e.AggregateType, e.AggregateID, hole.Version, e.Type, e.Version, hole.Missing)
	s.planf("The outbox refuses version %d. %s", hole.Version+1, result.Note)
	return s.act(&result, &result.DryRun, func() (string, error) {
		err := b.Allow(ctx, s.actor, hole)
		result.Allowed = err == nil
		return "Allowed. The outbox takes the next event of the aggregate.\n", err
	})
}

// row returns the row of an aggregate and its type. Without a type it looks into the tables of all types.
func (o Owner) row(ctx context.Context, s *invocation, kind, id string) (found string, row reconcile.Row, err error) {
	tables := o.Rows(s.db)
	for _, name := range o.Types {
		if kind != "" && kind != name {
			continue
		}
		r, err := tables[name].Row(ctx, id)
		switch {
		case errors.Is(err, reconcile.ErrID), err == nil && r.Version == 0:
			continue
		case err != nil:
			return "", row, err
		case found != "":
			return "", row, command.Usagef("--type is missing: %s is the id of a %s and of a %s", id, found, name)
		}
		found, row = name, r
	}
	if found == "" {
		return "", row, fmt.Errorf("%s: %w", id, errNoRow)
	}
	return found, row, nil
}
