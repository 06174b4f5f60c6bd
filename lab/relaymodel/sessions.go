package relaymodel

// Other sessions of the database.

// stepsOfLocks has the steps of another session, such as an administrator's, that locks the row of event
// t and unlocks it.
func stepsOfLocks(s *state, to taker, t int) {
	bit := uint8(1) << t
	switch w := s.db.rows[t]; {
	case has(s.locked, t):
		to(true, step{text: "the other session unlocks event {e}", event: t}, func(n *state) { n.locked &^= bit })
	case w.state == committed && s.left.locks > 0:
		to(false, step{text: "another session locks event {e}", event: t}, func(n *state) { n.left.locks--; n.locked |= bit })
	}
}

// stepsOfPurge models purge.sql, for the row of event t. The purge does not delete the newest event of
// an aggregate. A published row does not change any more, so the step needs no phases.
func stepsOfPurge(s *state, to taker, t int) {
	w := s.db.rows[t]
	if w.state != committed || !w.published || has(s.locked, t) || s.left.purges == 0 || s.in.next(&s.db.rows, t) < 0 {
		return
	}
	to(false, step{text: "the purge deletes event {e}", event: t}, func(n *state) {
		n.left.purges--
		n.db.rows[t] = row{state: deleted, version: w.version, xact: w.xact}
	})
}
