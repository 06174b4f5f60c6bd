// Package rebuild builds a new copy of a read model next to the one that is served, and
// exchanges the two while events and reads go on.
//
//	owner ── pages ──▶ shadow table ◀── mirror ── served table ◀── events
//	                        └───────── names change ──────┘
//
// # The shadow
//
// Each table of the read model gets a shadow, which is a table with the same columns, indexes,
// constraints, owner and rights. The shadow's rows come from the owner, page by page, and from the
// mirror. The mirror is a set of triggers of the served table, which copy each row that is written.
// So consumers need no code for a rebuild, no instance can miss the rebuild, and there is no cost
// while there is no rebuild.
//
// The mirror copies a row in the transaction that writes the row, over any version in the shadow.
// So a row that is written during the rebuild is never older in the shadow than in the served
// table. The pages do not bring a row that the owner does not know, or has only in an older
// version. Rebuild copies such rows from the served table before it compares.
//
// The mirror also copies damage. If a row is damaged and an event changes a part of the row, the
// rest of the row stays damaged. So rows are compared with the owner's rows twice: before the
// exchange, and after it, when nothing copies from the damaged table any more.
//
// # The phases
//
//	filling      the owner's rows are written to the shadow
//	comparing    each row that differs from the owner's gets the owner's state; then the
//	             tables are exchanged
//	checking     the new rows are served; a first comparison only decides whether the owner is
//	             doubtful, and the next ones repair the rows that differ
//	done         the former table is the shadow, and the mirror keeps it up to date
//	rolled back  an operator has exchanged the tables back; the mirror keeps the new one up to date
//
// The phase and the progress are in the table rebuild_state, which is created when the rebuild
// begins and dropped when it ends. If a process dies, the next one continues its phase, because all
// steps of a phase may be repeated. A lock of the session admits one process. A process that has
// lost its session may go on next to another process. So each change of the state names the rebuild
// and the phase that it applies to, and cannot undo a decision of the other process.
//
// An owner that lacks many rows may be the wrong one. So the repair of lost rows waits for the end
// of the comparison, and is refused if there are too many lost rows by the rule of
// reconcile.Doubtful. Before the exchange no row of the shadow is served. After the exchange the
// mirror copies each repair into the former table, so a rollback undoes no repair. Therefore, after
// the exchange, nothing is repaired before a comparison of all tables has decided about the owner.
//
// A served row that is ahead of its owner's is repaired only after the exchange, with the audit
// entry of a repair. So an exchange alone makes no read older.
//
// # The exchange
//
// One transaction locks both tables and exchanges their names, and the names of their indexes. It
// drops the triggers of the served table and creates them on the new one. The mirror's triggers are
// among them. The mirror's function refers to the tables by name, so it then copies from the new
// table to the old one, and a rollback is the same exchange. Views are created again, because a
// view stays with its table whatever the table's name. Postgres plans prepared statements again,
// and finds the tables by their names.
//
// The exchange waits for its locks in two steps. The first lock, SHARE UPDATE EXCLUSIVE, may have
// to wait until Postgres has ended an autovacuum, but no reader waits behind it. The second lock,
// ACCESS EXCLUSIVE, is waited for only for a moment.
//
// A migration that changes the served table during a rebuild leaves two tables of different shapes.
// They are not exchanged; see [ErrShape]. A migration that relaxes a rule of the served table makes
// the mirror fail, and with the mirror the transactions of the events. So package migrate refuses
// to work during a rebuild, and no rebuild begins while package migrate works. Nor does a rebuild begin while
// a service creates an index by itself (migrate.IndexLock).
package rebuild
