package projection_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/notify"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/txn"
)

// order is a row of the projection.
type order struct {
	ID, Item       string
	Epoch, Version int64
}

// orders is the table of orders, and the way to their owner.
type orders struct {
	db    *pgtest.Example
	owner map[string]order // a service calls its owner instead: see Call
}

func (orders) Type() string { return "order" }

func (orders) Decode(e eventing.Event) (inbox.Change, error) {
	c := inbox.Change{Kind: inbox.Updated, Payload: order{e.AggregateID, string(e.Payload), e.Epoch, e.Version}}
	if e.Type == "OrderPlaced" {
		c.Kind = inbox.Created
	}
	return c, nil
}

func (orders) Snapshot(o order) inbox.Change {
	return inbox.Change{Kind: inbox.Snapshot, Payload: o, Event: eventing.Event{
		AggregateType: "order", AggregateID: o.ID, Epoch: o.Epoch, Version: o.Version,
	}}
}

func (orders) Position(o order) inbox.Position {
	return inbox.Position{Epoch: o.Epoch, Version: o.Version}
}

func (orders) Apply(_ order, c inbox.Change) order { return c.Payload.(order) }

func (orders) Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]order, error) {
	rows, _ := tx.Query(ctx, `SELECT id, item, epoch, version FROM orders WHERE id = ANY ($1) ORDER BY id FOR UPDATE`, ids)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[order])
	byID := map[string]order{}
	for _, o := range found {
		byID[o.ID] = o
	}
	return byID, err
}

func (orders) Upsert(ctx context.Context, tx pgx.Tx, steps []inbox.Step[order]) (written []string, err error) {
	for _, s := range steps {
		statement := `INSERT INTO orders (id, item, epoch, version) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
		if s.Old.Version > 0 {
			statement = `UPDATE orders SET item = $2, epoch = $3, version = $4 WHERE id = $1`
		}
		tag, err := tx.Exec(ctx, statement, s.ID, s.New.Item, s.New.Epoch, s.New.Version)
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() > 0 {
			written = append(written, s.ID)
		}
	}
	return written, nil
}

func (a orders) Fetch(_ context.Context, ids []string, _ time.Duration) (found []order, epoch int64, asOf time.Time, err error) {
	for _, id := range ids {
		if o, known := a.owner[id]; known {
			found = append(found, o)
		}
	}
	return found, eventing.FirstEpoch, time.Now(), nil
}

func (a orders) List(_ context.Context, from string, _ time.Duration) (page projection.OwnersPage[order], err error) {
	page.AsOf = time.Now()
	for _, id := range slices.Sorted(maps.Keys(a.owner)) {
		if id >= from { // all in one page
			page.Rows = append(page.Rows, a.owner[id])
		}
	}
	return page, nil
}

// The rows of orders keep no inbox.Completeness, so none is incomplete.
func (orders) Incomplete(context.Context, string, int) (ids []string, err error) { return nil, nil }

func (orders) CountIncomplete(context.Context, int) (int64, error) { return 0, nil }

func (a orders) Positions(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error) {
	var ids []string
	for _, p := range wanted {
		ids = append(ids, p.AggregateID)
	}
	rows, _ := a.db.Query(ctx, `SELECT 'order' AS aggregate_type, id AS aggregate_id, epoch, version FROM orders WHERE id = ANY ($1)`, ids)
	return pgx.CollectRows(rows, pgx.RowToStructByName[consistency.Position])
}

// A service brings its table and its owner; the projection decides what an event does. Here
// version 2 is late: version 3 finds a gap, the consumer repairs the row from the owner, and
// version 2 is stale when it comes.
func ExampleProjection() {
	ctx := context.Background()
	db := pgtest.NewExample(`CREATE TABLE orders (id text PRIMARY KEY, item text NOT NULL, epoch bigint NOT NULL, version bigint NOT NULL)`)
	defer db.Close()
	table := orders{db: db, owner: map[string]order{"17": {"17", "four chairs", eventing.FirstEpoch, 3}}}
	log := slog.New(slog.DiscardHandler)
	waiters := consistency.NewWaiters(1000, table, notify.New(db.Pool, "", "orders", log))
	model := projection.New(txn.NewWriter(db.Pool), table, waiters, log) // a consumer takes it as its handler

	apply := func(change string, version int64, item string) eventing.Event {
		e := eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "17", Type: change, Version: version,
			SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(), Payload: []byte(item),
		}
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			outcome, err := inbox.ApplyOne(ctx, tx, model, e)
			fmt.Printf("version %d: %s\n", version, outcome)
			return err
		})
		if err != nil {
			panic(err)
		}
		return e
	}
	apply("OrderPlaced", 1, "two chairs")
	last := apply("OrderChanged", 3, "four chairs")
	fmt.Println("repair:", model.Repair(ctx, last))
	apply("OrderChanged", 2, "three chairs")

	var item string
	err := db.QueryRow(ctx, `SELECT item FROM orders WHERE id = '17' AND version = 3`).Scan(&item)
	fmt.Println(item, err)
	// Output:
	// version 1: applied
	// version 3: gap
	// repair: <nil>
	// version 2: stale
	// four chairs <nil>
}
