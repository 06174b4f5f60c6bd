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
	// Counter is the difference of a Recount.
	Counter Kind = "counter"
)

// Kinds are all kinds.
var Kinds = []Kind{Changed, Missing, Extra, Behind, Ahead, Counter}

// lossTime is how much younger than a row the owner's answer must be to show that the owner
// does not have the row's version any more. It is that of package inbox: it covers clocks
// that differ, and a former primary that still answers.
const lossTime = 30 * time.Second

// Difference is a row that differs. The zero Row is that of a side without one.
type Difference struct {
	ID     string
	Kind   Kind
	Reader Row
	Owner  Row
}

// Stands reports whether the reader's row is as it was in an earlier difference.
func (d Difference) Stands(was Difference) bool { return d.Reader.stands(was.Reader) }

// kindOf is the kind of the difference between two rows, certain or not, and empty for two
// that are equal.
func kindOf(reader, owner Row, a Answer) Kind {
	switch {
	case owner.Version == 0 && (reader.Version == 0 || reader.Deleted): // both say that there is none
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

// sighting is a row that differed, when it was seen first.
type sighting struct {
	id string
	// version is the owner's at the time since: see lasts.
	version int64
	since   time.Time
	// first is the time of the first sighting.
	first time.Time
}

// certain reports whether a difference of a kind is no change that is on its way.
func (s *sighting) certain(k Kind, reader, owner Row, a Answer, grace time.Duration) bool {
	// The answer's time is not the present one: a replica lags.
	outlives := a.AsOf.After(reader.At.Add(lossTime)) || fromFuture(reader.At)
	switch {
	case k == Changed && reader.EventID != uuid.Nil && reader.EventID == owner.EventID:
		return true
	case a.AsOf.IsZero():
		return false
	case k == Extra, k == Ahead:
		return outlives
	case k == Changed:
		// An owner's row that stands for the grace period is no event on its way, whatever its time.
		return outlives && (a.AsOf.After(owner.At.Add(grace)) || fromFuture(owner.At) && s.lasts(s.version != owner.Version, owner, a, grace))
	}
	// Else the reader must have been behind a version of the owner's for the grace period.
	return a.AsOf.After(owner.At.Add(grace)) || s.lasts(reader.Version >= s.version, owner, a, grace)
}

// lasts reports whether the difference lasts for longer than the grace period, which begins again
// with the owner's present version if the row has moved.
func (s *sighting) lasts(moved bool, owner Row, a Answer, grace time.Duration) bool {
	if s.since.IsZero() || moved {
		s.version, s.since = owner.Version, a.AsOf
	}
	return a.AsOf.Sub(s.since) > grace
}

// fromFuture reports whether a time is past the present by more than clocks differ: no event has
// made it.
func fromFuture(at time.Time) bool { return at.After(time.Now().Add(lossTime)) }

const (
	// fewLosses rows that the owner does not have, or has lost, are repaired in any case, and
	// more if they are at most one of lossShare rows.
	fewLosses = 100
	lossShare = 20
)

// Lost reports whether a difference of this kind is a row that the owner does not have, or has
// lost: its repair removes what no event brings back.
func (k Kind) Lost() bool { return k == Extra || k == Ahead }

// Doubtful reports whether so many rows are lost that the owner may be the wrong one, or an
// empty one. owned is how many rows the owner has, and read how many the read model: an owner
// of more rows than the read model must not hide that this would lose most of its own. A read
// model that lacks rows, however many, has no losses.
func Doubtful(losses int, owned, read int64) bool {
	return losses > 0 && owned == 0 || int64(losses) > max(fewLosses, min(owned, read)/lossShare)
}
