package operator

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestWhereIsAnEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := event(uuid.NewString(), 1)
	e.ID = b.append(t, e.AggregateID, 1)[0]
	var row struct {
		Event struct{ State string }
	}
	b.json(t, 0, "video events show "+e.ID.String(), &row)
	if row.Event.State != "pending" {
		t.Errorf("before it is published: %+v", row)
	}
	if _, stderr := b.run(t, 1, "catalog events show "+e.ID.String()); !strings.Contains(stderr, "it has not arrived") {
		t.Errorf("before it arrives: %s", stderr)
	}
	b.deadLetter(t, "title is a teapot", e)
	var found receipts
	b.json(t, 0, "catalog events show "+e.ID.String(), &found)
	if len(found.Receipts) != 1 || len(found.Projections) != 1 {
		t.Fatalf("a dead letter: %+v", found)
	}
	if r := found.Receipts[0]; r.Consumer != subscription || r.Status != "dead" || r.MessageID == "" || r.Version != 1 || r.ProcessedAt != nil {
		t.Errorf("a dead letter: %+v", r)
	}
	b.run(t, 0, "dlq redrive "+e.ID.String()+" --yes --why fixed")
	stdout, _ := b.run(t, 0, "catalog events show "+e.ID.String())
	for _, want := range []string{subscription, "done", "read model", "is at version 1 ", "redrive by ada", "fixed"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("after a redrive there is no %q in\n%s", want, stdout)
		}
	}
	b.run(t, 2, "catalog events show nothing")
	b.run(t, 2, "catalog events")
}
