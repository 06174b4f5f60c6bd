// Package checkpoint keeps the position of a consumer group in a table, and moves its
// subscription to another position.
//
// A consumer of package inbox saves its position once per batch, in the transaction of the
// batch's effects: neither is committed without the other. Each instance has a row of its
// own, because one row for the group would be a lock that all batches wait for. A view
// derives the position of the group.
//
// # Why nothing seeks forward by itself
//
// Pub/Sub keeps the acknowledgements, and they are the truth about the work that is left. A
// message is acknowledged after the commit of its effect, so a consumer that starts goes on
// with the messages that have none: it needs no position. A Seek acknowledges every message
// from before its time. A consumer that sought forward to its stored position, as consumers
// of a log do, would therefore discard the messages that were published before that position
// and never applied: those that wait for a repair, those of an instance that died, those that
// the broker had not delivered yet.
//
// So a consumer seeks only where its operator says so ([Store.Start]), and no further than the
// group's safe position. The same rule is for a reset ([Store.Reset]): to a later time it
// needs a decision to discard. Messages that the broker has not delivered yet are in no
// table: with a backlog, only a seek to before the oldest message ([ReadRetention]) gives up
// none.
//
// A seek back is harmless. Rows of the inbox that are done make each repeated message a
// duplicate, and versions stop those whose rows were purged. The projections do not change.
//
// # The table
//
// It is the service's own, and has the columns consumer_group, instance (the primary key),
// source, subscription, message_id, publish_time, lag_millis, updated_at and updated_by. The
// view `<table>_by_group` has consumer_group, subscription, safe_position, publish_time,
// oldest_held, instances and updated_at. Migration 01003 of the service catalog is an
// example, with the rule of safe_position, which 01008 extends.
//
// # Metrics
//
//	<prefix>.lag_ms   the age of the last batch's newest message when it was saved
//	<prefix>.save     saves whose transaction was committed
//	<prefix>.failure  saves that failed: the batch is tried again, with its offset
//
// The lag is of the last batch: it rises in a replay, although the position stays, and keeps
// its value while nothing arrives. A consumer that stands still shows in the subscription's
// oldest unacknowledged message. At the level debug, one save a minute is logged: a line for
// each would be as many lines as batches.
package checkpoint
