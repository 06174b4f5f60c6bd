package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/bounded"
)

const (
	// queryTimeout bounds the statements that run outside of a batch.
	queryTimeout = 5 * time.Second
	// probeTimeout bounds the smallest writes, such as the one that shows whether the database
	// works.
	probeTimeout = 2 * time.Second
)

// store has the SQL statements of the consumer. Those of a batch's transaction are in accept.go,
// and others are in maintain.go and crashloop.go.
type store struct {
	db       *pgxpool.Pool
	consumer string
	// instance distinguishes this consumer from others of the same name.
	instance uuid.UUID
}

// within runs statements with a time limit, outside of a batch's transaction.
func (s store) within(limit time.Duration) bounded.Pool { return bounded.Pool{DB: s.db, Limit: limit} }

// uuidArray converts ids to pgtype's own type. pgx can send an array of that type without asking
// the server for the type first. Not every query mode allows pgx to ask.
func uuidArray(ids ...uuid.UUID) []pgtype.UUID {
	all := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		all[i] = pgtype.UUID{Bytes: id, Valid: true}
	}
	return all
}

func ids(batch []*delivery) []pgtype.UUID {
	all := make([]pgtype.UUID, len(batch))
	for i, d := range batch {
		all[i] = pgtype.UUID{Bytes: d.id(), Valid: true}
	}
	return all
}

const (
	// rowColumns are the columns of an inbox row that a delivery fills. rowsOf is a table of the
	// values of these columns, except consumer, from the parameters $2 to $8.
	rowColumns = `consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time`
	rowsOf     = `unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::timestamptz[])
		       AS e (event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time)`
)

// sameAs returns the SQL condition that the inbox row i and another SQL row have the same aggregate
// and version. row is the name of the other row. The statement has matched the two rows by event
// id, so the condition means that they are of the same event. The key of an inbox row is the
// event's id alone, but events with the same id are different events if their aggregates or
// versions differ: see "Identity" in the package doc. So each statement that finds inbox rows by id
// has this condition, or follows a statement that had the condition.
func sameAs(row string) string {
	return fmt.Sprintf(`(i.aggregate_type, i.aggregate_id, i.version) = (%[1]s.aggregate_type, %[1]s.aggregate_id, %[1]s.version)`, row)
}

// joinedRows is the FROM and WHERE of an UPDATE that changes the inbox row i of each delivery.
// eachRow is the part after FROM.
var (
	joinedRows = `FROM ` + eachRow
	eachRow    = rowsOf + `
		 WHERE i.consumer = $1 AND i.event_id = e.event_id AND ` + sameAs("e")
)

func (s store) rows(batch []*delivery) []any {
	n := len(batch)
	types, aggTypes, aggIDs, messages := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	versions, times := make([]int64, n), make([]time.Time, n)
	for i, d := range batch {
		e, m := d.event(), d.message()
		types[i], aggTypes[i], aggIDs[i], versions[i] = e.Type, e.AggregateType, e.AggregateID, e.Version
		messages[i], times[i] = m.ID, m.PublishTime
	}
	return []any{s.consumer, ids(batch), types, aggTypes, aggIDs, versions, messages, times}
}

// noteError writes why d is still blocked.
func (s store) noteError(ctx context.Context, d *delivery, why string) error {
	_, err := s.within(queryTimeout).Statement("note error", `
		UPDATE inbox i SET last_error = $9 `+joinedRows+` AND i.status = 'held'`,
		append(s.rows([]*delivery{d}), eventing.Reason(why))...).Exec(ctx)
	return err
}

// countAttempt counts a failure by d's own fault, and returns the number of these failures so far.
// done says that another instance has applied d meanwhile.
func (s store) countAttempt(ctx context.Context, d *delivery, cause error, class fault) (total int, done bool, err error) {
	return s.writeUnfinished(ctx, d, "held", class.String()+": "+cause.Error(), 1)
}

// markDead writes that d is in the dead letters. A row that is discarded stays so: see
// writeUnfinished.
func (s store) markDead(ctx context.Context, d *delivery, reason error) error {
	_, _, err := s.writeUnfinished(ctx, d, "dead", reason.Error(), 0)
	return err
}

// hold gives the inbox rows of batch the status held, and returns the events whose rows are done. It
// inserts the rows that are missing. A row that is done or dead keeps its status. A discarded row keeps it,
// too, unless beforeLetter is true: then another dead letter of its event follows (holdBeforeLetter). hold
// does not change the recorded starts and attempts. If the row with an event's id is of another event, that
// row stays as it is. If another session has locked one of the rows, hold gives up after minLockWait and
// writes no row (txn.IsLockTimeout).
func (s store) hold(ctx context.Context, why string, beforeLetter bool, batch ...*delivery) (done map[*delivery]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	kept := []string{"done", "dead", "discarded"}
	if beforeLetter {
		kept = kept[:2]
	}
	b := waiting(minLockWait)
	b.Queue(`
		WITH written AS (
		  INSERT INTO inbox AS i (`+rowColumns+`, status, last_error)
		  SELECT DISTINCT ON (e.event_id) $1, e.*, 'held', $9 FROM `+rowsOf+` ORDER BY e.event_id
		  ON CONFLICT (consumer, event_id) DO UPDATE
		     SET status = CASE WHEN i.status = ANY($10) THEN i.status ELSE 'held' END,
		         processed_at = CASE WHEN i.status = ANY($10) THEN i.processed_at END,
		         last_error = CASE WHEN i.status = ANY($10) THEN i.last_error ELSE $9 END, last_seen_at = clock_timestamp()
		   WHERE `+sameAs("excluded")+`
		  RETURNING event_id, aggregate_type, aggregate_id, version, status)
		SELECT event_id, aggregate_type, aggregate_id, version FROM written WHERE status = 'done'`,
		append(s.rows(batch), eventing.Reason(why), kept)...).
		Query(func(rows pgx.Rows) (err error) {
			done, err = matching(rows, batch)
			return err
		})
	if err := s.db.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("hold: %w", err)
	}
	return done, nil
}

func (s store) writeUnfinished(
	ctx context.Context, d *delivery, status, why string, attempts int,
) (total int, done bool, err error) {
	// A row that is done stays done, because another process has applied the event meanwhile. A row that
	// is dead or discarded stays so, too. Another instance may have published the dead letter and acknowledged
	// the message, and an operator may have discarded the letter. If the row were held and this process ended,
	// no message would come, and the row would stay held for ever. (The row of an event that was discarded
	// earlier is held again before its next dead letter is published: see holdBeforeLetter.) If the row with
	// this id is of another event, that row stays as it is, and d has no row.
	err = s.within(queryTimeout).Statement("write inbox", `
		INSERT INTO inbox AS i (`+rowColumns+`, status, attempts, last_error)
		SELECT $1, e.*, $9, $10::int, $11 FROM `+rowsOf+`
		ON CONFLICT (consumer, event_id) DO UPDATE
		   SET status = CASE i.status WHEN 'held' THEN excluded.status ELSE i.status END,
		       attempts = i.attempts + excluded.attempts, begun = 0,
		       last_error = excluded.last_error, last_seen_at = clock_timestamp()
		 WHERE `+sameAs("excluded")+`
		RETURNING attempts, status = 'done'`, append(s.rows([]*delivery{d}), status, attempts, eventing.Reason(why))...).Scan(ctx, &total, &done)
	if errors.Is(err, pgx.ErrNoRows) {
		return attempts, false, nil
	}
	return total, done, err
}

// writes reports whether the database takes the smallest write in time. A database that answers
// queries may not take writes, because its disk is full or slow, or because a standby is
// unavailable.
func (s store) writes(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := s.register(ctx)
	return err == nil
}
