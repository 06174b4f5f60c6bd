package reconcile

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

const (
	// DefaultGrace is the grace period of a check if Options has none. It is longer than an event takes to
	// reach the reader after processes were killed. A relay's lease lasts 20 s, and the message of a killed
	// consumer comes again after 30 s, or after the subscription's ack deadline of 60 s if it is not package
	// inbox that consumes.
	DefaultGrace = 90 * time.Second
	// maxPending bounds the uncertain rows that are kept in memory to be looked at again.
	maxPending = 10_000
	// maxAge is the age of the oldest uncertain row at which the check, after the present part, looks at all
	// uncertain rows again. It also bounds the work that is repeated when another instance continues a
	// check, because a check continues at the first uncertain row.
	maxAge = 2 * time.Minute
	// graces is how many grace periods a row may stay uncertain before it counts as unsettled.
	graces = 2
)

// errAnswer means that the owner's answer is not about the ids that the check asked for. With such
// answers the check might never end.
var errAnswer = errors.New("the owner's answer is no answer to the question")

// again is the pause between two looks at the uncertain rows.
var again = backoff.Policy{Base: 250 * time.Millisecond, Cap: 2 * time.Second}

// Model is the read model of one type of aggregate. A *projection.Projection is a Model.
type Model interface {
	// Type is the aggregate type.
	Type() string
	// Replace writes the owner's present state over each row that is still as it is in seen, and
	// keeps the previous row in the audit table. It asks standing which rows these are, in the transaction that
	// writes them, when it has locked the rows. It returns the ids of the rows that it has written.
	Replace(ctx context.Context, by audit.Actor, seen []Row, standing Standing) (replaced []string, err error)
}

// Standing returns those of the rows seen that are still the same. It reads them in tx, so that of two repairs
// of one difference, at the same time, one writes the row, and the other finds it written. The zero Row, apart from its
// id, stands for a row that does not exist.
type Standing func(ctx context.Context, tx pgx.Tx, seen []Row) (same []Row, err error)

// Checker checks and repairs a part of a read model. It is a Comparison of rows with their
// owner's, or a Recount of counters.
type Checker interface {
	// Type is the type in the results. It is the aggregate type, or the Type of the Counters.
	Type() string
	// Estimate returns about how many rows a check reads.
	Estimate(ctx context.Context) (rows int64, err error)
	// Start is the first id of a whole check.
	Start() string
	// Check checks the rows from the id o.From on, and passes the differences to the observer seen.
	// An error of the observer ends the check. Check returns how many rows could not be checked.
	Check(ctx context.Context, o Options, seen Observer) (unsettled int, err error)
	// Repair removes those differences in found that still exist, and keeps the previous rows in
	// the audit table. It returns the ids of the rows that it has changed. The database may be away for half a
	// minute, and Repair tries again. If the answer to a COMMIT was lost, the rows of that transaction are not returned.
	Repair(ctx context.Context, by audit.Actor, found []Difference) (repaired []string, err error)
	// Still returns the differences that remain after a repair.
	Still(ctx context.Context, found []Difference) (left []Difference, err error)
}

// Comparison is the Checker of rows. It compares the reader's table with the table of its owner.
type Comparison struct {
	Model  Model
	Reader *Table
	Owner  Owner
}

// Type is the aggregate type.
func (c Comparison) Type() string { return c.Model.Type() }

// Estimate returns about how many rows the reader's table has.
func (c Comparison) Estimate(ctx context.Context) (rows int64, err error) {
	return tryAgain(ctx, nil, func() (int64, error) { return c.Reader.Estimate(ctx) })
}

// Start is the lowest id of the reader's table.
func (c Comparison) Start() string { return c.Reader.Start() }

// Options has a safe zero value.
type Options struct {
	// From is the first id to check; empty is the table's first.
	From string
	// Rate is the most rows per second that either side reads; 0 is no limit.
	Rate int
	// Grace is how long an event may be on its way; 0 is DefaultGrace.
	Grace time.Duration
}

// Observer receives the results of a check.
type Observer interface {
	// Passed says that all rows with ids below next are checked. rows is how many of the owner's rows, or
	// how many counters, were read since the last call of Passed. It leaves out rows that only the reader has.
	// A check that continues another one reads some rows again. If there is no progress, Passed is called with
	// 0 rows from time to time, so that the observer knows that the check goes on.
	Passed(ctx context.Context, next string, rows int64) error
	// Differ receives rows that certainly differ. A check reports each row once.
	Differ(ctx context.Context, found []Difference) error
	// Waits says that the differences of so many rows are not certain yet, because their events may be on the
	// way, and that the check looks at these rows again until they are decided. Waits is called every ten seconds
	// meanwhile.
	Waits(ctx context.Context, rows int)
	// Retries says that a read of the reader's rows has failed with err, because of the connection, and is
	// tried again.
	Retries(ctx context.Context, err error)
}

// Check compares all rows from the id o.From on, in parts and in the order of their ids. It passes
// the rows that differ to the observer seen, and ends with an error of that observer. It returns
// how many rows could not be decided, because they changed faster than they could be compared, or
// because the owner's answers are from before these rows. If the reader's database is away, Check tries
// again for half a minute. An error of the Owner ends the check: the Owner itself repeats a request that
// failed.
func (c Comparison) Check(ctx context.Context, o Options, seen Observer) (unsettled int, err error) {
	r := &run{
		Comparison: c, definition: c.Reader.Definition(), grace: cmp.Or(o.Grace, DefaultGrace),
		observer: metered{seen, c.Type()}, limit: o.Limiter(),
		from: cmp.Or(o.From, c.Start()),
	}
	from := r.from
	for from != c.Reader.End() {
		if from, err = r.part(ctx, from); err != nil {
			return 0, err
		}
	}
	err = r.settle(ctx)
	return r.unsettled, err
}

// Limiter limits the rows per second to Rate, with a burst of PartRows.
func (o Options) Limiter() *rate.Limiter {
	limit := rate.NewLimiter(rate.Inf, PartRows)
	if o.Rate > 0 {
		limit.SetLimit(rate.Limit(o.Rate))
	}
	return limit
}

// Repair replaces each of the reader's rows in found by the owner's row.
func (c Comparison) Repair(ctx context.Context, by audit.Actor, found []Difference) (repaired []string, err error) {
	seen := make([]Row, len(found))
	for i, d := range found {
		seen[i] = d.Reader
		seen[i].ID = d.ID
	}
	return repairAgain(ctx, func() ([]string, error) { return c.Model.Replace(ctx, by, seen, c.Reader.standing) })
}

// Still compares the rows of the differences once more. If a user has changed a row since its
// repair, the new difference does not count, because the event is on its way.
func (c Comparison) Still(ctx context.Context, found []Difference) (left []Difference, err error) {
	r := &run{Comparison: c, definition: c.Reader.Definition()}
	for _, d := range found {
		reader, owner, answer, err := r.look(ctx, d.ID)
		if err != nil {
			return nil, err
		}
		kind, s := kindOf(reader, owner, answer), uncertainRow{id: d.ID}
		if kind != "" && (reader.stands(d.Reader) || s.certain(kind, reader, owner, answer, DefaultGrace)) {
			left = append(left, Difference{d.ID, kind, reader, owner})
		}
	}
	return left, nil
}
