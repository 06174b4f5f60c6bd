// Package checkpoint keeps the position of a consumer group in a table, and moves its
// subscription to another position.
//
// A consumer of package inbox saves its position once per batch, in the transaction of the
// batch's effects, so that neither is committed without the other. Each instance has a row of its
// own. With a single row, all batches would wait for the lock of that row. A view derives the
// position of the group. While aggregates are blocked, an instance saves a position before their
// first messages. A saved position never moves back, so a message that arrives long after later
// messages may be before it. Therefore the first event of each aggregate that waits has a held row in
// the inbox, and the view's safe position is before the oldest of these rows, whichever instance has
// the message. The later events of a waiting aggregate have no rows. If a later event was published
// before the first event, and came after it, the position may be past the later event.
//
// # Why nothing seeks forward by itself
//
// Pub/Sub keeps the acknowledgements, and these show which messages have no effect yet. A message
// is acknowledged after the commit of its effect, so a consumer that starts goes on with the
// messages that are not acknowledged. The consumer needs no stored position for that. A Seek
// acknowledges every message that was published before the time of the seek. If a consumer sought
// forward to its stored position, as consumers of a log do, the consumer would discard the messages
// that were published before that position and never applied. These are messages that wait for a
// repair, messages of an instance that died, and messages that the broker had not delivered yet.
//
// So a consumer seeks only if its operator says so ([Store.Start]), and no further than the group's
// safe position. A reset ([Store.Reset]) has the same limit, unless its operator decides to discard
// messages. No table has the messages that the broker has not delivered yet. If there is a backlog,
// only a seek to before the oldest message ([ReadRetention]) gives up none of these messages.
//
// A seek back is harmless. If the inbox row of a repeated message is done, the message is a
// duplicate. If the inbox row was purged, the message is stale by its version. In both cases the
// projections do not change.
//
// # The table
//
// The table belongs to the service. It has the columns consumer_group, instance (these two are the
// primary key), source, subscription, message_id, publish_time, lag_millis, updated_at and
// updated_by. The view `<table>_by_group` has consumer_group, subscription, safe_position,
// publish_time, oldest_held, instances and updated_at. Migration 01003 of the service catalog is an
// example. That migration has the rule of safe_position, and migration 01008 extends the rule.
//
// # Metrics
//
//	<prefix>.lag_ms   the age of the last batch's newest message when its offset was saved
//	<prefix>.save     saves whose transaction was committed
//	<prefix>.failure  saves that failed. The batch is tried again, and saves its offset then
//
// The metric lag_ms has the lag of the last batch. In a replay the lag rises, although the position
// stays. While no message arrives, the lag keeps its value. So only the age of the subscription's
// oldest unacknowledged message shows a consumer that stands still. At level debug, one save a
// minute is logged, because with a line for each save the log would have a line for every batch.
package checkpoint
