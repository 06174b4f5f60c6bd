package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// A row at version 2 moves only to version 3. A difference to a later version needs the
// state between them, which only the owner has.
func ExampleDecide() {
	row := inbox.Position{Epoch: eventing.FirstEpoch, Version: 2}
	for _, version := range []int64{1, 2, 3, 5} {
		c := inbox.Change{Kind: inbox.Updated, Event: eventing.Event{Epoch: eventing.FirstEpoch, Version: version}}
		fmt.Printf("version %d: %s\n", version, inbox.Decide(row, c))
	}
	// A tombstone stays, also where an event of before the deletion arrives late.
	row = inbox.Position{Epoch: eventing.FirstEpoch, Version: 4, Deleted: true}
	late := inbox.Change{Kind: inbox.Updated, Event: eventing.Event{Epoch: eventing.FirstEpoch, Version: 3}}
	fmt.Println("version 3 of a deleted order:", inbox.Decide(row, late))
	// Output:
	// version 1: stale
	// version 2: stale
	// version 3: applied
	// version 5: gap
	// version 3 of a deleted order: stale
}

// The owner's answer lacks two versions that the row has. Soon after them the answer may be
// that of a replica that lags, and the row stays. If the answer lacks them still later on,
// they count as lost: its state replaces the row, although its version is lower.
func ExampleAdopt() {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	row := inbox.Position{Epoch: eventing.FirstEpoch, Version: 9, At: noon}
	owner := inbox.Change{Kind: inbox.Snapshot, Event: eventing.Event{
		Epoch: eventing.FirstEpoch, Version: 7, OccurredAt: noon.Add(-time.Hour),
	}}
	for _, later := range []time.Duration{10 * time.Second, 2 * time.Minute} {
		fmt.Printf("an answer of %s later: %s\n", later, inbox.Adopt(row, owner, noon.Add(later)))
	}
	// Output:
	// an answer of 10s later: stale
	// an answer of 2m0s later: diverged
}

// A subscription that carries two types of aggregates has a handler for each.
func ExampleRoute() {
	handlers := inbox.Route{"order": orders{}}
	handlers.Committed(context.Background(), consistency.Position{AggregateType: "order", AggregateID: "17", Epoch: 1, Version: 2})
	_, err := handlers.Decode(eventing.Event{AggregateType: "invoice"})
	fmt.Println(err, errors.Is(err, inbox.ErrUnknown))
	// Output:
	// moved: order/17 to version 2
	// aggregate_type: "invoice": this build does not know it true
}
