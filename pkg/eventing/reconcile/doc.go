// Package reconcile compares a read model with the rows of its owner, and finds the rows that
// differ. The owner is in another service, and its rows are in another database.
//
//	reader                                    owner
//	  │  asks for the digests from an id on     │
//	  ├────────────────────────────────────────▶│  [Table.Part]: up to PartRows rows,
//	  │◀────────────────────────────────────────┤  a digest for every leafRows of them
//	  │  digests the same ranges of its table   │
//	  │  asks for rows where digests differ     │
//	  ├────────────────────────────────────────▶│  [Table.Page]: id, position and digest
//	  │◀────────────────────────────────────────┤  of each row
//	  │  judges the rows that differ            │
//
// # One definition
//
// Both sides run the same SQL of this package over their own table, in the database. The SQL makes
// a JSON array of each row. The MD5 of the array is the row's digest, and the digest of a range is
// a sum over its rows. So a range of any length takes no memory. For a tombstone only id, version
// and times count, because a read model keeps nothing else. The reader names the fields to compare,
// which are all fields that the reader has. If the owner's build lacks one of these fields, the
// owner answers [ErrDefinition], so that two builds that cannot be compared do not look like two
// tables that differ.
//
// The epoch is part of no digest, because the owner's rows have no epoch of their own. After
// `epoch bump` every row of the owner is in the new epoch. A row of the reader is in the new epoch
// only if the row has changed since. The id of the last event counts if both sides know it.
//
// # In-flight changes are no difference
//
// Two tables that change are never read at one moment. So a check decides by the time of the
// owner's answer whether a difference is certain. A certain difference is not caused by an event
// that is on its way:
//
//	changed   the reader has the same version with another content. "changed" is certain at once
//	          if the same event made both rows, because the content of an event is final.
//	          Otherwise "changed" is certain if both of these are true: the answer is more than
//	          lossTime younger than the reader's row, and the owner's version is older than the
//	          grace period.
//	behind    the reader has a lower version.
//	missing   the reader has no row. "behind" and "missing" are certain in two cases, because then
//	          the event is no longer on its way. Either the owner's version is older than the grace
//	          period, or the check first saw that version longer ago than the grace period and the
//	          reader has not reached it since.
//	extra     the owner never had the row, or has lost it.
//	ahead     the reader has a higher version, or a later epoch. "extra" and "ahead" are certain if
//	          the answer is more than lossTime younger than the reader's row, because then the
//	          answer is not from before the row. If only the epoch is later, the answer must also be
//	          lossTime younger than the first look that found the row in its epoch.
//
// A check looks again at each row whose difference is not certain yet. The first new look comes at
// the end of the check, or after the part of the check in which the oldest uncertain row has waited
// for two minutes. The check looks until the row is equal, the difference is certain, or the row has
// been uncertain for too long, and says meanwhile how many rows it waits for. The progress that a
// check reports ends before the first uncertain row. So if another instance continues the check,
// that instance judges the row again. A row is reported as unsettled if it changes faster than it
// can be compared, or if the owner's answers are too old.
//
// # Counters
//
// Counters that a read model derives from its own rows have no owner. A [Recount] reads
// [Counters] and their rows in one snapshot, some rows at a time. It reports wrong counters in
// the same way as rows that differ.
//
// # Repair
//
// [Model] locks a row, and writes the owner's state over the row only if the row still has the
// position at which it was found to differ. So a live event that came in between wins. A check that
// dies loses nothing, because it writes only whole repairs. The next check may begin at any id.
package reconcile
