package reconcile

import (
	"time"

	"github.com/google/uuid"
)

// Kind is the kind of a difference; the package doc has the rule for each.
type Kind string

// The kinds.
const (
	Changed Kind = "changed"
	Missing Kind = "missing"
	Extra   Kind = "extra"
	Behind  Kind = "behind"
	Ahead   Kind = "ahead"
	// Counter is a wrong counter, which a Recount has found.
	Counter Kind = "counter"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Changed, Missing, Extra, Behind, Ahead, Counter} }

// lossTime is how much younger than a row the owner's answer must be to show that the owner does
// not have the row's version any more. As in package inbox, it covers clocks that differ, and a
// former primary that still answers.
const lossTime = 30 * time.Second

// Difference is a row that differs. A side that has no row has the zero Row.
type Difference struct {
	ID     string
	Kind   Kind
	Reader Row
	Owner  Row
}

// Stands reports whether the reader's row is the same as in the earlier difference.
func (d Difference) Stands(was Difference) bool { return d.Reader.stands(was.Reader) }

// kindOf returns the kind of the difference between two rows, certain or not. The kind is empty
// if the rows are equal.
func kindOf(reader, owner Row, a Answer) Kind {
	switch {
	case owner.Version == 0 && (reader.Version == 0 || reader.Deleted): // both sides say that there is no row
		return ""
	case owner.Version == 0:
		return Extra
	case reader.Version == 0:
		return Missing
	case reader.Epoch > a.Epoch || reader.Version > owner.Version:
		return Ahead
	case reader.Version < owner.Version:
		return Behind
	case reader.Digest != owner.Digest || differ(reader.EventID, owner.EventID):
		return Changed
	}
	return ""
}

func differ(a, b uuid.UUID) bool { return a != uuid.Nil && b != uuid.Nil && a != b }

// uncertainRow is a row whose difference was not certain when the check first saw it.
type uncertainRow struct {
	id string
	// since is the time at which the grace period of the row began. See the method lasts.
	since time.Time
	// version is the owner's version of the row at the time since.
	version int64
	// epoch is the reader's epoch of the row. See the method epochStands.
	epoch int64
	// seen is the time at which the check first saw the row in that epoch.
	seen time.Time
	// first is the time at which the check first saw the difference.
	first time.Time
}

// certain reports whether a difference of kind k is not due to a change that is on its way. a is
// the owner's answer.
func (s *uncertainRow) certain(k Kind, reader, owner Row, a Answer, grace time.Duration) bool {
	// The time of the owner's answer counts, not the present, because the answer may come from a
	// replica that lags.
	outlives := a.AsOf.After(reader.At.Add(lossTime)) || fromFuture(reader.At)
	switch {
	case k == Changed && reader.EventID != uuid.Nil && reader.EventID == owner.EventID:
		return true
	case a.AsOf.IsZero():
		return false
	case k.Lost():
		return s.epochStands(k, reader, owner, a) && outlives
	case k == Changed:
		return outlives && s.ownerStands(owner, a, grace)
	}
	// The kind is Behind or Missing. The reader must have been behind one version of the owner
	// for the grace period.
	return a.AsOf.After(owner.At.Add(grace)) || s.lasts(reader.Version >= s.version, owner, a, grace)
}

// ownerStands reports whether the owner's row has been unchanged for the grace period. Then the event of that
// row is not on its way. If the time of the row is in the future, it cannot show this. Then the check itself
// must have seen the same version for the grace period.
func (s *uncertainRow) ownerStands(owner Row, a Answer, grace time.Duration) bool {
	return a.AsOf.After(owner.At.Add(grace)) || fromFuture(owner.At) && s.lasts(s.version != owner.Version, owner, a, grace)
}

// lasts reports whether the difference has lasted for longer than the grace period. moved is true if the row
// has moved since the period began. Then the period begins again, with the owner's present version.
func (s *uncertainRow) lasts(moved bool, owner Row, a Answer, grace time.Duration) bool {
	if s.since.IsZero() || moved {
		s.version, s.since = owner.Version, a.AsOf
	}
	return a.AsOf.Sub(s.since) > grace
}

// epochStands is about a row that is Ahead only by its epoch. It reports whether the owner's answer is more
// than lossTime younger than the check's first look at the reader's row in that epoch. An earlier answer may
// be from before the owner began the epoch. The time of the row (Row.At) does not show that, because a repair
// moves a row of any age to the present epoch. For every other row epochStands returns true.
func (s *uncertainRow) epochStands(k Kind, reader, owner Row, a Answer) bool {
	if k != Ahead || reader.Version > owner.Version {
		return true
	}
	if s.seen.IsZero() || reader.Epoch != s.epoch {
		s.epoch, s.seen = reader.Epoch, time.Now()
	}
	return a.AsOf.After(s.seen.Add(lossTime))
}

// fromFuture reports whether the time at is later than the present by more than lossTime, which
// covers clocks that differ. No event has such a time, so no event wrote the row.
func fromFuture(at time.Time) bool { return at.After(time.Now().Add(lossTime)) }

const (
	// fewLosses is the number of lost rows (Kind.Lost) that never make an owner doubtful, unless the owner
	// has no rows at all. See Doubtful.
	fewLosses = 100
	// lossShare is the divisor for the share of rows that may be lost: more lost rows than fewLosses make the
	// owner doubtful if they are more than one row in lossShare.
	lossShare = 20
)

// Lost reports whether a difference of this kind is a row that the owner does not have, or has
// lost. The repair of such a row removes a state that no event brings back.
func (k Kind) Lost() bool { return k == Extra || k == Ahead }

// Doubtful reports whether so many rows are lost that the owner may be the wrong one, or an empty
// one. losses is the number of lost rows, owned is the number of the owner's rows, and read is the
// number of the read model's rows. losses is compared with the smaller of owned and read. Otherwise
// an owner with many more rows could hide that the read model would lose most of its own rows. Rows
// that the read model lacks, however many, are no losses.
func Doubtful(losses int, owned, read int64) bool {
	return losses > 0 && owned == 0 || int64(losses) > max(fewLosses, min(owned, read)/lossShare)
}
