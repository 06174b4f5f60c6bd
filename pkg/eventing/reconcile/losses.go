package reconcile

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
