package reconcile

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/operator/audit"
)

// Counters is a table of counters that a read model derives from its own rows, such as the likes
// of each video. The ids are UUIDs. The owner has no part in the counters. Rows and counters are
// read in one snapshot, so a difference is certain at once.
type Counters interface {
	// Type names the counters in results, next to the aggregate types.
	Type() string
	// Estimate returns about how many counters there are.
	Estimate(ctx context.Context) (rows int64, err error)
	// Count counts the rows of the first ids in the range in, and compares the numbers with the counters.
	// It takes as many ids as have about PartRows rows together.
	Count(ctx context.Context, in Range) (Counted, error)
	// Recount sets the counters of ids to the values that their rows have, and keeps the
	// differences in the audit table. It returns the ids whose counters were wrong.
	Recount(ctx context.Context, by audit.Actor, ids []string) (wrong []string, err error)
}

// Counted is a part of a recount.
type Counted struct {
	// Until is the id behind the part. It is the range's Until if there are no more ids.
	Until string
	// Rows is the number of ids in the part that have counters.
	Rows int64
	// Wrong are the ids whose counters differ from their rows.
	Wrong []string
	// Uncounted is how many ids have more rows than can be counted in the time of one statement.
	Uncounted int
}

// Recount is the Checker of counters.
type Recount struct{ Counters }

// Start is the lowest id.
func (Recount) Start() string { return uuid.Nil.String() }

// Estimate returns about how many counters there are.
func (c Recount) Estimate(ctx context.Context) (rows int64, err error) {
	return tryAgain(ctx, nil, func() (int64, error) { return c.Counters.Estimate(ctx) })
}

// Check counts all rows again from the id o.From on, and passes wrong counters to the observer
// seen. unsettled is the number of ids with too many rows to count. If the database is away, Check tries
// again for half a minute.
func (c Recount) Check(ctx context.Context, o Options, seen Observer) (unsettled int, err error) {
	limit, end := o.Limiter(), uuid.Max.String()
	seen = metered{seen, c.Type()}
	for from := cmp.Or(o.From, c.Start()); from != end; {
		if err := limit.WaitN(ctx, PartRows); err != nil {
			return unsettled, err
		}
		part, err := tryAgain(ctx, seen, func() (Counted, error) { return c.Count(ctx, Range{from, end}) })
		if err != nil {
			return unsettled, err
		}
		if part.Until <= from {
			return unsettled, fmt.Errorf("%w: a count of %s from %s ends at %.100q", errAnswer, c.Type(), from, part.Until)
		}
		if len(part.Wrong) > 0 {
			if err := seen.Differ(ctx, differences(part.Wrong)); err != nil {
				return unsettled, err
			}
		}
		unsettled += part.Uncounted
		from = part.Until
		if err := seen.Passed(ctx, from, part.Rows); err != nil {
			return unsettled, err
		}
	}
	return unsettled, nil
}

// Repair counts the rows of the differences once more, and corrects the counters.
func (c Recount) Repair(ctx context.Context, by audit.Actor, found []Difference) (repaired []string, err error) {
	return repairAgain(ctx, func() ([]string, error) { return c.Recount(ctx, by, ids(found)) })
}

// Still counts the rows of the differences once more, one id at a time.
func (c Recount) Still(ctx context.Context, found []Difference) (left []Difference, err error) {
	for _, id := range ids(found) {
		part, err := tryAgain(ctx, nil, func() (Counted, error) { return c.Count(ctx, Only(id)) })
		if err != nil {
			return nil, err
		}
		left = append(left, differences(part.Wrong)...)
	}
	return left, nil
}

func differences(wrong []string) (found []Difference) {
	for _, id := range wrong {
		found = append(found, Difference{ID: id, Kind: Counter})
	}
	return found
}

func ids(found []Difference) (ids []string) {
	for _, d := range found {
		ids = append(ids, d.ID)
	}
	return ids
}
