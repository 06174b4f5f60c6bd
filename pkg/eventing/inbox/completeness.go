package inbox

// Completeness is a row's record of the build that wrote its state. An event may say more
// than the consumer's build understands: a field, or a type of event, that the owner's
// newer build writes. The consumer applies what it understands, the row moves to the
// event's version, and no gap ever tells that the rest is missing. So the row is
// incomplete, and a build that understands more takes the owner's state. The zero
// Completeness is that of a row from before the record: it counts as complete.
//
// A revision is a number that grows with what builds understand: see
// projection.Revision.
type Completeness struct {
	// Revision is that of the build that wrote the state.
	Revision int64
	// Incomplete says that the owner's state has more.
	Incomplete bool
}

// After is the completeness of a row after change, where it was c before.
//
// A change of everything makes a row complete, except one that a build of a higher
// revision has written: it has columns that this build does not know, and cannot clear.
// A change of a part keeps the rest: an incomplete row stays incomplete, and a complete
// one keeps the higher revision.
func (c Completeness) After(change Change) Completeness {
	switch {
	case change.Kind != Updated:
		return Completeness{Revision: change.Revision, Incomplete: change.Partial || c.Revision > change.Revision}
	case c.Incomplete:
		return Completeness{Revision: min(c.Revision, change.Revision), Incomplete: true}
	case change.Partial:
		return Completeness{Revision: change.Revision, Incomplete: true}
	}
	return Completeness{Revision: max(c.Revision, change.Revision)}
}

// improvedBy reports whether a state that a build of revision reads from the owner has more
// than the row, although it may be of the row's version.
func (c Completeness) improvedBy(revision int64) bool { return c.Incomplete && c.Revision < revision }
