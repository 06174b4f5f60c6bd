package services_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
)

// answerAll answers each case of its input by the rules of the reader: %s is what it does with a case.
const answerAll = `import { readFileSync } from "node:fs";
import { decide, settles } from "./rules.mjs";
const cases = JSON.parse(readFileSync(0));
console.log(JSON.stringify(cases.map(({ row, event, owned, as_of }) => %s)));`

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
	got := rulesOfReader[string](t, "decide(row, event)", cases)
	for i, c := range cases {
		if want := inbox.Decide(c.Row.position(), c.Event.change()).String(); got[i] != want {
			t.Fatalf("the reader says %s, the inbox %s: row %+v, event %+v", got[i], want, c.Row, c.Event)
		}
	}
	t.Logf("%d cases", len(cases))
}

// judged is an answer of the owner, as of a time, about an event that does not fit its row.
type judged struct {
	Row   place  `json:"row"`
	Event place  `json:"event"`
	Owned place  `json:"owned"`
	AsOf  string `json:"as_of,omitempty"`
}

// TestAnswersOfTheNodeReader compares settles, which judges an answer of the owner, with inbox.Has and inbox.Adopt. The
// reader may ask more often than the inbox, but takes no row that the inbox refuses.
func TestAnswersOfTheNodeReader(t *testing.T) {
	t.Parallel()
	var cases []judged
	for _, event := range historyOfRules() {
		for _, row := range append(historyOfRules(), place{}) {
			if o := inbox.Decide(row.position(), event.change()); o == inbox.Applied || o == inbox.Stale {
				continue
			}
			for _, owned := range append(historyOfRules(), place{}) {
				for _, asOf := range []string{"", second(5).Format(time.RFC3339), second(40).Format(time.RFC3339)} {
					cases = append(cases, judged{row, event, owned, asOf})
				}
			}
		}
	}
	for i, settled := range rulesOfReader[bool](t, "settles(owned, as_of, row, event)", cases) {
		c := cases[i]
		asOf, _ := time.Parse(time.RFC3339, c.AsOf) // zero if it is unknown
		has := inbox.Has(c.Owned.position(), c.Event.change().Event, asOf)
		state := c.Owned.change()
		state.Kind = inbox.Snapshot
		refused := inbox.Adopt(c.Row.position(), state, asOf) == inbox.Stale && c.Owned != c.Row
		switch {
		case c.Owned.Version == 0:
			if late := c.AsOf != "" && asOf.Equal(second(40)); settled != late {
				t.Fatalf("settled %v without a row: %+v", settled, c)
			}
		case settled && (refused || errors.Is(has, inbox.ErrBehind)):
			t.Fatalf("takes an answer that the inbox does not take (%v): %+v", has, c)
		case !settled && !asOf.IsZero() && !refused && has == nil:
			t.Fatalf("asks again after an answer that has the event: %+v", c)
		}
	}
	t.Logf("%d cases", len(cases))
}

// historyOfRules has events of several histories. Each id has one time.
func historyOfRules() (events []place) {
	for _, epoch := range []int64{1, 2} {
		for _, version := range []int64{1, 2, 3} {
			for i, id := range []string{one, other, third} {
				events = append(events, place{Kind: "updated", Epoch: epoch, Version: version, ID: id, At: second(2 + i), Tenant: "a"})
			}
		}
	}
	return events
}

func rulesOfReader[A, C any](t *testing.T, what string, cases []C) (answers []A) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("not installed: node")
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), "node", "--input-type=module", "--eval", fmt.Sprintf(answerAll, what))
	node.Dir, node.Stdin, node.Stderr = "../clients/reader", bytes.NewReader(input), t.Output()
	out, err := node.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(cases) {
		t.Fatalf("%d answers of %d cases, %v", len(answers), len(cases), err)
	}
	return answers
}

const (
	one   = "11111111-1111-4111-8111-111111111111"
	other = "22222222-2222-4222-8222-222222222222"
	third = "33333333-3333-4333-8333-333333333333"
)

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
