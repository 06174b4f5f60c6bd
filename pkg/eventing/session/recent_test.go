package session

import (
	"testing"

	"example.com/lockstep/pkg/eventing/consistency"
)

// A session that gets many answers about a few aggregates does not grow.
func TestASessionHasEachAggregateOnce(t *testing.T) {
	t.Parallel()
	var s Session
	for _, id := range []string{"a", "b", "a", "b", "a"} {
		at := consistency.Position{AggregateType: "video", AggregateID: id, Epoch: 1, Version: 1}
		if err := s.Keep(consistency.Token{Positions: []consistency.Position{at}}.String()); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.recent) != 2 || s.recent[1].AggregateID != "a" {
		t.Errorf("it has %+v, want a behind b", s.recent)
	}
}
