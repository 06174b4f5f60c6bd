package consistency_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/notify"
)

// orderQuery reads one order. It keeps the version that it has read last.
type orderQuery struct {
	db       *pgtest.Example
	owner    int64 // the owner's version
	required consistency.Requirement
	version  int64
}

func (q *orderQuery) ReadProjection(ctx context.Context) (consistency.Freshness, error) {
	err := q.db.QueryRow(ctx, `SELECT version FROM orders WHERE id = '17'`).Scan(&q.version)
	if len(q.unmet()) > 0 {
		return consistency.Behind, err
	}
	return consistency.Reached, err
}

func (q *orderQuery) FetchFromOwner(context.Context) error {
	q.version = q.owner // a service calls the owner here
	if len(q.unmet()) > 0 {
		return consistency.ErrAhead
	}
	return nil
}

func (q *orderQuery) unmet() []consistency.StaleAggregate { return q.required.Unmet(at17(q.version)) }

func at17(version int64) consistency.Position {
	return consistency.Position{AggregateType: "order", AggregateID: "17", Epoch: 1, Version: version}
}

// A read with a token never shows an older order. If the projection does not get there in
// time, the owner answers, unless it has no such version either.
func ExampleReader_Read() {
	ctx := context.Background()
	db := pgtest.NewExample(`
		CREATE TABLE orders (id text PRIMARY KEY, version bigint NOT NULL);
		INSERT INTO orders VALUES ('17', 1)`)
	defer db.Close()
	// Nothing runs the waiters: the event never comes.
	waiters := consistency.NewWaiters(1000, nil, notify.New(db.Pool, "", "orders", slog.New(slog.DiscardHandler)))
	reader := consistency.NewReader(waiters)

	for _, version := range []int64{1, 2, 3} {
		request := consistency.Request{
			Token: consistency.Token{Positions: []consistency.Position{at17(version)}}.String(), Wait: time.Millisecond,
		}
		required, err := request.Requirement("order", func(id string) bool { return id != "" })
		if err != nil {
			panic(err)
		}
		q := &orderQuery{db: db, owner: 2, required: required}
		outcome, err := reader.Read(ctx, required, q)
		fmt.Println("version", version, outcome, err)
	}
	// Output:
	// version 1 fresh <nil>
	// version 2 authority <nil>
	// version 3 failed the consistency token is ahead of the owner
}
