package backlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// Epoch is a life of the owner's database, which a restore ends. The first epoch is 1.
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

// BeginEpoch begins a new epoch and returns it. From then on outbox.Append refuses events of the
// former epoch with outbox.ErrEpochEnded, and the owner repeats its decision in the new epoch. A
// transaction that called Append earlier may still commit events of the former epoch. In each
// aggregate these events precede the events of the new epoch, because the transaction holds the
// row's lock until it commits.
//
// The number of an epoch is the time in seconds, or the last number plus 1 if that is higher. With
// a count, two epochs could get the same number: if a second restore took a backup from before the
// first restore, the restored table would not have the epoch that followed the first restore.
func (b *Backlog) BeginEpoch(ctx context.Context, o audit.Actor) (Epoch, error) {
	if err := o.Validate(); err != nil {
		return Epoch{}, fmt.Errorf("begin epoch: %w", err)
	}
	begun, err := bounded.Collect(ctx, b.db.Statement("begin epoch", `
		INSERT INTO outbox_epochs (epoch, actor, why)
		SELECT greatest(max(epoch) + 1, extract(epoch FROM clock_timestamp())::bigint), $1, $2 FROM outbox_epochs
		RETURNING `+epochColumns, o.By, o.Why), pgx.RowToStructByName[Epoch])
	if err != nil {
		return Epoch{}, err
	}
	return begun[0], nil
}
