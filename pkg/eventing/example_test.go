package eventing_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// An event travels as a Pub/Sub message: its payload is the data, everything else is an
// attribute, and the aggregate is the ordering key.
func ExampleEvent_Message() {
	e := eventing.Event{
		ID: uuid.MustParse("0190a5d0-0000-7000-8000-000000000001"), AggregateType: "order", AggregateID: "17", Type: "OrderPlaced",
		Version: 1, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC),
		Payload: []byte("two chairs"),
	}
	message := e.Message()
	fmt.Printf("key %s, data %s\n", message.GetOrderingKey(), message.GetData())
	fmt.Println(message.GetAttributes()["event_type"], message.GetAttributes()["version"], message.GetAttributes()["occurred_at"])
	// Output:
	// key 17, data two chairs
	// OrderPlaced 1 2026-11-22T12:00:00Z
}

// A message that is no event is refused with the name of the attribute.
func ExampleParseMessage() {
	_, err := eventing.ParseMessage([]byte("hello"), map[string]string{"event_id": "0190a5d0-0000-7000-8000-000000000001", "version": "first"})
	fmt.Println(err)
	// Output: message attributes: version: strconv.ParseInt: parsing "first": invalid syntax
}

// An event that lacks something is refused before it is written.
func ExampleEvent_Validate() {
	e := eventing.Event{ID: uuid.New(), AggregateType: "order", AggregateID: "17", Type: "OrderPlaced"}
	fmt.Println(e.Validate())
	// Output: version: 0, versions begin at 1
}

// A handler says which errors no retry can fix: their events go to the dead letters at
// once.
func ExamplePermanent() {
	err := eventing.Permanent(errors.New("duration_seconds: negative"))
	fmt.Println(err, eventing.IsPermanent(fmt.Errorf("decode: %w", err)))
	// Output: duration_seconds: negative true
}
