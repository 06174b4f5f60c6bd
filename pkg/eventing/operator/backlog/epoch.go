package backlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/txn"
)

// Epoch is an epoch of the owner's database: see eventing.FirstEpoch. A restore ends an epoch, and the
// operator then begins the next one with BeginEpoch. The first epoch is 1.
type Epoch struct {
	Epoch        int64     `json:"epoch"`
	BeganAt      time.Time `json:"began_at"`
	By           string    `json:"by"`
	DatabaseRole string    `json:"database_role"`
	Why          string    `json:"why"`
}

const epochColumns = `epoch, began_at, actor AS by, database_role, why`

// Epochs returns all epochs, the present one first.
func (b *Backlog) Epochs(ctx context.Context) ([]Epoch, error) {
	return bounded.Collect(ctx, b.db.Statement("read epochs",
		`SELECT `+epochColumns+` FROM outbox_epochs ORDER BY epoch DESC`), pgx.RowToStructByName[Epoch])
}

// ErrOtherEpoch means that the epoch after which a new one was to begin is neither the present epoch nor the one before it.
var ErrOtherEpoch = errors.New("there is another present epoch")

// After returns the epoch that has begun after the epoch before, if there is one. epochs are those of Epochs, the newest two
// or more. Without a next epoch, After returns the zero Epoch. The error is ErrOtherEpoch if more than one epoch has begun since,
// or if there is no epoch before.
func After(epochs []Epoch, before int64) (Epoch, error) {
	switch {
	case epochs[0].Epoch == before:
		return Epoch{}, nil
	case len(epochs) > 1 && epochs[1].Epoch == before:
		return epochs[0], nil
	}
	return Epoch{}, fmt.Errorf("after epoch %d: %w, %d", before, ErrOtherEpoch, epochs[0].Epoch)
}

// writersTime is how long BeginEpoch tries to get the outbox without a transaction that writes to it.
const writersTime = 10 * time.Second

// onlyEpoch waits for the end of a vacuum of the outbox, and of another begin of an epoch. No writer waits behind its lock. It
// waits for longer than Postgres' deadlock_timeout of 1 s, after which an autovacuum gives way. If the process stands still later,
// while writers wait, Postgres ends its session after 3 s, as in a rebuild (bounded.LostClient), and no epoch begins.
const onlyEpoch = `SET LOCAL lock_timeout = '1500ms'; SET LOCAL idle_in_transaction_session_timeout = '3s';
	LOCK TABLE outbox IN SHARE UPDATE EXCLUSIVE MODE`

// quiet has the statements that lock the outbox against writers. Writers wait behind this lock, for up to txn.LockTime. So
// the lock waits for a third of that time, and the insert of the epoch's row and COMMIT have the other two thirds. The insert is
// sent together with quiet, and COMMIT next. Between two tries the writers go on.
var quiet = []string{
	fmt.Sprintf(`SET LOCAL lock_timeout = %d`, (txn.LockTime / 3).Milliseconds()), `LOCK TABLE outbox IN SHARE MODE`,
}

// quietRetry is the pause between two tries to lock the outbox. It is short, because a try succeeds
// only if all statements that write to the outbox end within the try's wait for the second lock.
var quietRetry = backoff.Policy{Base: 100 * time.Millisecond, Cap: 300 * time.Millisecond}

// BeginEpoch begins a new epoch and returns it. From then on outbox.Append refuses events of the
// former epoch with outbox.ErrEpochEnded, and the owner repeats its decision in the new epoch.
//
// BeginEpoch waits until no transaction has appended events that are not committed. Otherwise a
// reader could take a row over in the new epoch, and then refuse the row's last event of the former
// epoch as stale. If such a transaction does not end within ten seconds, the error says so. A VACUUM
// that was started by hand also has to end first, and so has an autovacuum against wraparound.
// BeginEpoch tries to lock the outbox again and again. A try succeeds only if all statements that write to
// the outbox end within its wait of 33 ms. If relays have many longer statements, such as scans of a cold
// table after a restore, an operator may have to stop the relays.
//
// The number of an epoch is the time in seconds since 1970, or the last number plus 1 if that is higher.
// With a count, two epochs could get the same number: if a second restore took a backup from before the
// first restore, the restored table would not have the epoch that followed the first restore.
func (b *Backlog) BeginEpoch(ctx context.Context, o audit.Actor) (Epoch, error) {
	return b.tryEpoch(ctx, o, func(context.Context, pgx.Tx) (Epoch, error) { return Epoch{}, nil })
}

// BeginEpochAfter begins the epoch after the epoch before, as BeginEpoch does. If that epoch has begun already,
// BeginEpochAfter changes nothing and returns it. So a call that was cut off may be repeated. The error is ErrOtherEpoch if
// before is neither the present epoch nor the one before it.
func (b *Backlog) BeginEpochAfter(ctx context.Context, o audit.Actor, before int64) (Epoch, error) {
	return b.tryEpoch(ctx, o, func(ctx context.Context, tx pgx.Tx) (Epoch, error) {
		rows, _ := tx.Query(ctx, `SELECT `+epochColumns+` FROM outbox_epochs ORDER BY epoch DESC LIMIT 2`) // rows has the error
		newest, err := pgx.CollectRows(rows, pgx.RowToStructByName[Epoch])
		if err != nil {
			return Epoch{}, err
		}
		return After(newest, before)
	})
}

// begun returns the epoch if it has begun already, and else the zero Epoch. No other epoch begins before tx ends.
type begun func(ctx context.Context, tx pgx.Tx) (Epoch, error)

// tryEpoch tries to lock the outbox and to begin an epoch, unless it has begun already.
func (b *Backlog) tryEpoch(ctx context.Context, o audit.Actor, already begun) (e Epoch, err error) {
	if err := o.Validate(); err != nil {
		return Epoch{}, fmt.Errorf("begin epoch: %w", err)
	}
	tries, cancel := context.WithTimeout(ctx, writersTime)
	defer cancel()
	for range quietRetry.Attempts(tries) {
		if e, err = b.beginEpoch(ctx, o, already); !txn.IsLockTimeout(err) {
			return e, err
		}
	}
	return Epoch{}, fmt.Errorf("begin epoch: "+
		"a transaction that has written to the outbox, a vacuum of it, or the scan of a relay does not end: %w", err)
}

func (b *Backlog) beginEpoch(ctx context.Context, o audit.Actor, already begun) (e Epoch, err error) {
	err = b.db.Tx(ctx, "begin epoch", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, onlyEpoch); err != nil {
			return err
		}
		if e, err = already(ctx, tx); err != nil || e.Epoch > 0 {
			return err
		}
		e, err = insertEpoch(ctx, tx, o)
		return err
	})
	return e, err
}

// insertEpoch locks the outbox and inserts the row of a new epoch, in one round trip.
func insertEpoch(ctx context.Context, tx pgx.Tx, o audit.Actor) (e Epoch, err error) {
	b := &pgx.Batch{}
	for _, statement := range quiet {
		b.Queue(statement)
	}
	b.Queue(`
		INSERT INTO outbox_epochs (epoch, actor, why)
		SELECT greatest(max(epoch) + 1, extract(epoch FROM clock_timestamp())::bigint), $1, $2 FROM outbox_epochs
		RETURNING `+epochColumns, o.By, o.Why).Query(func(rows pgx.Rows) (err error) {
		e, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Epoch])
		return err
	})
	err = tx.SendBatch(ctx, b).Close()
	return e, err
}
