package services_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
)

// decideAll answers each case of its input with the outcome by the rules of the reader.
const decideAll = `import { readFileSync } from "node:fs";
import { decide } from "./rules.mjs";
const cases = JSON.parse(readFileSync(0));
console.log(JSON.stringify(cases.map(({ row, event }) => decide(row, event))));`

// place is a row, or an event, in the words of clients/reader.
type place struct {
	Kind     string    `json:"kind"`
	Epoch    int64     `json:"epoch"`
	Version  int64     `json:"version"`
	ID       string    `json:"event_id,omitempty"`
	Previous string    `json:"previous_event_id,omitempty"`
	At       time.Time `json:"at"`
	Tenant   string    `json:"tenant,omitempty"`
	Deleted  bool      `json:"deleted"`
}

var readerKinds = map[string]inbox.Kind{"created": inbox.Created, "updated": inbox.Updated, "deleted": inbox.Deleted, "skipped": inbox.Skipped}

// TestRulesOfTheNodeReader compares the rules of clients/reader with inbox.Decide, for each event on each row of a few.
func TestRulesOfTheNodeReader(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("not installed: node")
	}
	type pair struct {
		Row   place `json:"row"`
		Event place `json:"event"`
	}
	var cases []pair
	for _, row := range rowsOfRules() {
		for _, event := range eventsOfRules() {
			cases = append(cases, pair{row, event})
		}
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), "node", "--input-type=module", "--eval", decideAll)
	node.Dir, node.Stdin, node.Stderr = "../clients/reader", bytes.NewReader(input), t.Output()
	out, err := node.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out, &got); err != nil || len(got) != len(cases) {
		t.Fatalf("%d outcomes of %d cases, %v", len(got), len(cases), err)
	}
	for i, c := range cases {
		if want := inbox.Decide(c.Row.position(), c.Event.change()).String(); got[i] != want {
			t.Fatalf("the reader says %s, the inbox %s: row %+v, event %+v", got[i], want, c.Row, c.Event)
		}
	}
	t.Logf("%d cases", len(cases))
}

const one, other = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

func rowsOfRules() (rows []place) {
	rows = append(rows, place{})
	for _, epoch := range []int64{1, 2} {
		for _, version := range []int64{1, 2} {
			for _, id := range []string{one, ""} {
				for _, deleted := range []bool{false, true} {
					rows = append(rows, place{Epoch: epoch, Version: version, ID: id, At: second(2), Tenant: "a", Deleted: deleted})
				}
			}
		}
	}
	return rows
}

func eventsOfRules() (events []place) {
	for kind := range readerKinds {
		for i := range 3 * 3 * 2 * 3 * 3 * 2 {
			pick := func(n int) (k int) { k, i = i%n, i/n; return k }
			events = append(events, place{
				Kind: kind, Epoch: int64(1 + pick(3)), Version: int64(1 + pick(3)), ID: []string{one, other}[pick(2)],
				Previous: []string{one, other, ""}[pick(3)], At: second(1 + pick(3)), Tenant: []string{"a", "b"}[pick(2)],
			})
		}
	}
	return events
}

func second(n int) time.Time { return time.Unix(int64(n), 0).UTC() }

func (p place) position() inbox.Position {
	return inbox.Position{Epoch: p.Epoch, Version: p.Version, Deleted: p.Deleted, EventID: idOrNil(p.ID), At: p.At, Tenant: p.Tenant}
}

func (p place) change() inbox.Change {
	return inbox.Change{Kind: readerKinds[p.Kind], Event: eventing.Event{
		ID: idOrNil(p.ID), PreviousEventID: idOrNil(p.Previous), Epoch: p.Epoch, Version: p.Version, OccurredAt: p.At, TenantID: p.Tenant,
	}}
}

func idOrNil(s string) uuid.UUID {
	if s == "" {
		return uuid.Nil
	}
	return uuid.MustParse(s)
}
