// Package reconcile compares a read model with the rows of its owner, in another service
// and another database, and finds the rows that differ.
//
//	reader                                    owner
//	  │  which digests have the rows from A?    │
//	  ├────────────────────────────────────────▶│  [Table.Part]: up to PartRows rows,
//	  │◀────────────────────────────────────────┤  a digest for every leafRows of them
//	  │  the same ranges of its own table       │
//	  │  where a digest differs:                │
//	  ├────────────────────────────────────────▶│  [Table.Page]: id, position and digest
//	  │◀────────────────────────────────────────┤  of each row
//	  │  judges the rows that differ            │
//
// # One definition
//
// Both sides run the same SQL of this package over their own table, in the database: a row
// becomes a JSON array, of which the MD5 is the row's digest, and the digest of a range is a
// sum over its rows. So a range of any length takes no memory. Of a tombstone only id,
// version and times count, because a read model keeps no more. The reader names the fields
// that it compares, all that it has. An owner whose build lacks one answers [ErrDefinition]:
// two builds that cannot be compared are not taken for two tables that differ.
//
// The epoch is part of no digest. The owner's rows have none of their own: after
// `epoch bump` the owner has every row in the new epoch, the reader only those that have
// changed since. The id of the last event counts where both sides know it.
//
// # In-flight changes are no difference
//
// Two tables that change are never read at one moment. Each row is judged by the time of
// the owner's answer:
//
//	changed   the same version with another content. Certain at once if both rows are by
//	          the same event, whose content is final
//	behind    the reader has a lower version
//	missing   the reader has no row. For both, the owner's version must be older than the
//	          grace period, or must have been seen as long ago: the event is not on its way
//	extra     the owner never had the row, or has lost it
//	ahead     the reader has a higher version, or a later epoch. For both, the answer must
//	          be younger than the row by lossTime: it is not from before the row
//
// A row of which none of this is certain yet is looked at again, until it is equal or the
// difference is certain, at least once a minute. Until then a check has not passed it: one that
// continues in another instance judges it again. A row that changes faster than it can be
// compared is reported as unsettled, and so is one for which the owner's answers are too old.
//
// # Counters
//
// What a read model derives from its own rows has no owner. A [Recount] reads [Counters] and
// their rows in one snapshot, some rows at a time, and reports those that are wrong in the
// same way.
//
// # Repair
//
// [Model] writes the owner's state over a row only if the row is still where it was seen to
// differ, under its lock. A live event that came in between wins. A check that dies loses
// nothing: it writes nothing but whole repairs, and another one begins where it likes.
package reconcile
