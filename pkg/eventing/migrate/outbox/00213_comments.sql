-- The meaning of each table, column, index and function, where an administrator looks for it: psql's \d+ and \df+
-- show these comments. They change no row, and wait for no reader and no writer.

-- +goose Up
SET LOCAL lock_timeout = '1500ms';
COMMENT ON TABLE outbox IS 'The events of the service. A row is written in the transaction of its change. A relay publishes it, and deletes it after the retention. The newest row of each aggregate stays, without its payload.';
COMMENT ON COLUMN outbox.id IS 'The id of the event, the same in each delivery.';
COMMENT ON COLUMN outbox.aggregate_type IS 'The kind of thing that has changed. It decides the topic.';
COMMENT ON COLUMN outbox.aggregate_id IS 'The thing that has changed. It is the ordering key of the message.';
COMMENT ON COLUMN outbox.event_type IS 'The full name of the payload''s message type.';
COMMENT ON COLUMN outbox.version IS 'The version that the event makes. The versions of an aggregate follow each other without a gap.';
COMMENT ON COLUMN outbox.schema_version IS 'The version of the payload''s schema.';
COMMENT ON COLUMN outbox.payload IS 'The message, in the binary format of protobuf. An erasure and the retention empty it.';
COMMENT ON COLUMN outbox.occurred_at IS 'The time of the change, by the clock of the instance that wrote it.';
COMMENT ON COLUMN outbox.tenant_id IS 'The tenant of the aggregate. Empty in events from before tenants.';
COMMENT ON COLUMN outbox.epoch IS 'The epoch of the owner in which the event was written: see outbox_epochs.';
COMMENT ON COLUMN outbox.traceparent IS 'The trace of the request, in the format of W3C Trace Context.';
COMMENT ON COLUMN outbox.published_at IS 'The time at which a relay has noted the broker''s acknowledgement. NULL while the event is pending.';
COMMENT ON COLUMN outbox.publish_attempts IS 'How often the broker has refused the event since it was written or released by an operator. Outages do not count.';
COMMENT ON COLUMN outbox.next_retry_at IS 'The time from which a relay may take the event again. It is set for a refused event, for one that an operator has released, and for one behind these.';
COMMENT ON COLUMN outbox.lock_token IS 'The relay that has the lease: its claim writes it, or the transaction that writes the event. Only the oldest pending event of an aggregate has a lease, which covers the events behind it.';
COMMENT ON COLUMN outbox.locked_at IS 'The beginning of the lease.';
COMMENT ON COLUMN outbox.parked_at IS 'The time at which the event was refused for the last time. It waits for an operator, and holds up its own aggregate only.';
COMMENT ON COLUMN outbox.last_error IS 'The error of the last attempt. NULL after the event is published.';
COMMENT ON COLUMN outbox.xact IS 'The transaction that wrote the row. Relays find new rows by it, because time and id do not follow the order of commits.';
COMMENT ON COLUMN outbox.source_event_id IS 'The event that this one answers, in a service that consumes and emits.';
COMMENT ON COLUMN outbox.gapless IS 'Whether the next event of the aggregate must have the next version. False in rows from before the column, and where an operator has allowed a hole.';
COMMENT ON COLUMN outbox.previous_event_id IS 'The event of the version before. A consumer with another one detects that the owner has lost commits. NULL if unknown.';
COMMENT ON INDEX outbox_by_xact IS 'New events, and pages of a scan. uuid_send keeps lookups by id away from this index.';
COMMENT ON INDEX outbox_retry IS 'Events that are due at a time.';
COMMENT ON INDEX outbox_parked IS 'Events that wait for an operator.';
COMMENT ON INDEX outbox_source_event IS 'An event is answered once for each aggregate.';
COMMENT ON VIEW outbox_pending IS 'The unpublished events. It reads no published ones, whatever the size of the table.';
COMMENT ON FUNCTION outbox_refuses(text, text, bigint, bigint) IS 'Refuses an event whose version does not follow the newest one. Append calls it. SQLSTATE 23505 or LS002.';
COMMENT ON TABLE outbox_relays IS 'One row for each living relay. Each pending event is covered by the low of some row, except those that wait for a time or an operator, and those behind them. A relay deletes the row of a dead relay.';
COMMENT ON COLUMN outbox_relays.token IS 'The relay: the lock_token of its leases.';
COMMENT ON COLUMN outbox_relays.low IS 'A snapshot in which no unfinished event of the relay was visible. A relay that takes over scans the rows that it did not see.';
COMMENT ON COLUMN outbox_relays.seen_at IS 'The last heartbeat. -infinity after the relay has ended by itself.';
COMMENT ON COLUMN outbox_relays.tenants IS 'The tenants that the relay has met of late. They decide if tenants share the relays.';
COMMENT ON COLUMN outbox_relays.session IS 'The process id of the session that wrote the last heartbeat. If it has ended, the relay probably has, too.';
COMMENT ON COLUMN outbox_relays.server IS 'The start of the server that session belongs to.';
COMMENT ON TABLE outbox_retention IS 'The progress of all relays in deleting old published events, in one row.';
COMMENT ON COLUMN outbox_retention.one IS 'Always true, so that there is one row.';
COMMENT ON COLUMN outbox_retention.next_page IS 'The page of the table''s file at which the pass goes on.';
COMMENT ON COLUMN outbox_retention.passed_at IS 'The time at which the last pass reached the end of the table.';
COMMENT ON TABLE outbox_epochs IS 'The owner''s epochs. The newest is the present one. After a restore an operator begins the next one, and positions compare by epoch and version. Rows are never changed or deleted.';
COMMENT ON COLUMN outbox_epochs.epoch IS 'The number of the epoch, from 1 on.';
COMMENT ON COLUMN outbox_epochs.began_at IS 'The time at which it began.';
COMMENT ON COLUMN outbox_epochs.actor IS 'The operator, as given to the command.';
COMMENT ON COLUMN outbox_epochs.database_role IS 'The role that the command has logged in as.';
COMMENT ON COLUMN outbox_epochs.why IS 'The reason that the operator gave.';
COMMENT ON FUNCTION outbox_refuses_epoch(bigint, bigint) IS 'Refuses an event of another epoch than the present one. Append calls it. SQLSTATE LS004.';

-- +goose Down
-- The comments of a table end with it.
