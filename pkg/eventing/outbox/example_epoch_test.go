package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/backlog"
	"example.com/lockstep/pkg/eventing/outbox"
)

// A process keeps the epoch that it has read, and reads it again after ErrEpochEnded. Here an
// operator begins an epoch between two writes.
func ExampleEpoch() {
	ctx := context.Background()
	db := pgtest.NewExample("")
	defer db.Close()
	epoch := outbox.NewEpoch(db.Pool) // one for the process

	write := func(id string) error {
		present, err := epoch.Present(ctx)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			return outbox.Append(ctx, tx, nil, eventing.Event{
				ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: id, Type: "OrderPlaced",
				Version: 1, SchemaVersion: 1, Epoch: present, OccurredAt: time.Now().UTC(),
			})
		})
	}
	place := func(id string) error {
		err := write(id)
		for errors.Is(err, outbox.ErrEpochEnded) {
			fmt.Println("order", id, "is decided again")
			epoch.Forget()
			err = write(id)
		}
		return err
	}
	fmt.Println(place("17"))
	beginEpoch(ctx, db)
	fmt.Println(place("18"))
	fmt.Println(place("19"))
	// Output:
	// <nil>
	// order 18 is decided again
	// <nil>
	// <nil>
}

// beginEpoch does the same as the operator's command `epoch bump`.
func beginEpoch(ctx context.Context, db *pgtest.Example) {
	cfg, err := pgxpool.ParseConfig(db.Admin)
	if err != nil {
		panic(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = pgtest.Library.Name
	operator, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		panic(err)
	}
	defer operator.Close()
	if _, err := backlog.New(operator).BeginEpoch(ctx, audit.Actor{By: "ada", Why: "the database was restored"}); err != nil {
		panic(err)
	}
}
