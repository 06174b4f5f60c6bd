// Package rebuild builds a new copy of a read model next to the one that is served, and
// exchanges the two while events and reads go on.
//
//	owner ── pages ──▶ shadow table ◀── mirror ── served table ◀── events
//	                        └───────── names change ──────┘
//
// # The shadow
//
// Each table of the read model gets a shadow: the same columns, indexes, constraints, owner
// and rights. Its rows come from the owner, page by page, and from the mirror: triggers of
// the served table, which copy each row that is written. So the code of the consumers has no
// switch, no instance can miss the rebuild, and without a rebuild there is no cost.
//
// The mirror copies rows in the transaction that writes them, whatever the shadow has. So the
// shadow's row is never older than the served one, once both exist. A row that the owner does
// not know, or has an older version of, does not come with the pages: Rebuild carries it over
// before it compares.
//
// The mirror also copies what is wrong: an event that changes a part of a damaged row leaves
// the rest of it damaged. So the comparison with the owner is made twice, before the exchange
// and after it, when nothing copies from the damaged table any more.
//
// # The phases
//
//	filling    the owner's rows come into the shadow
//	comparing  rows that differ from the owner's get its state; then the tables are exchanged
//	checking   the new rows are served; a comparison only decides whether the owner is doubtful,
//	           and the next ones repair the rows that differ
//	done       the table of before is the shadow, and the mirror keeps it as new
//	rolled back, at an operator's wish: as done, with the tables of before
//
// The phase and the progress are in the table rebuild_state, which begins and ends with the
// rebuild. A process that dies leaves a phase behind that the next one continues; nothing that
// a phase does is wrong if it is done twice. A lock of the session admits one process; one that
// has lost its session may go on next to another, and each change of the state names the phase
// and the rebuild that it is of: it does not undo what the other one has decided.
//
// An owner that lacks many rows is perhaps the wrong one. Lost rows wait for the end of their
// comparison, and are then repaired or, by the rule of reconcile.Doubtful, refused. Before the
// exchange nothing of the shadow is served. After it the mirror copies each repair into the
// table of before, and a rollback undoes none: so nothing at all is repaired before a
// comparison of all tables has decided.
//
// A row of the served table that is ahead of its owner's is repaired after the exchange only,
// under the audit of a repair: an exchange alone makes no read older.
//
// # The exchange
//
// One transaction locks both tables and changes names: of the tables, and of their indexes.
// The triggers are dropped and made again, since they belong to the table that is served. The
// mirror's are among them, and its function names the tables: it then copies from the new
// table to the old one, and a rollback is the same exchange. Views are made again, since they
// stay with a table whatever its name. Prepared statements are planned again by Postgres,
// which finds the tables by their names.
//
// The locks of the exchange are waited for in two steps. The first one, SHARE UPDATE EXCLUSIVE,
// takes as long as an autovacuum that Postgres ends for it, and no reader waits behind it. The
// second one has a moment.
//
// A migration that changes the served table while there is a shadow leaves two tables of
// different shapes. They are not exchanged: see [ErrShape]. One that relaxes the served table
// makes the mirror fail, and with it the events: package migrate refuses while there is a
// rebuild, and no rebuild begins while package migrate works.
package rebuild
