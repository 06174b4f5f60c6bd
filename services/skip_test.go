package services_test

import (
	"net/http"
	"testing"

	"example.com/lockstep/pkg/eventing"
)

// No event follows a deletion. If the deletion's event is skipped at its owner, or
// discarded here, the read model gets the deletion all the same: from the owner's
// state.
func TestASkippedDeletionArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	stop := w.startVideo(t)
	w.startCatalog(t)
	skipped, discarded := w.create(t, "skipped"), w.create(t, "discarded")
	w.reaches(t, skipped)
	w.reaches(t, discarded)
	gone := func(v answer) func() bool {
		return func() bool { return w.read(t, v.ID, "", 0).code == http.StatusGone }
	}

	stop()
	mute := w.startMutedVideo(t) // its relay publishes nothing, so the event can be parked
	w.remove(t, skipped)
	event := w.park(t, skipped.ID, 2)
	mute()
	w.startVideo(t)
	o.types(t, "skip", "EVENT="+event, "the newest event of its aggregate", "Skipped")
	eventually(t, "the skipped deletion arrives", gone(skipped))
	if events := w.events(t, skipped.ID); events[len(events)-1].Type != eventing.Skipped {
		t.Errorf("the last event is a %s", events[len(events)-1].Type)
	}

	// A read model that cannot take the deletion, and is fixed too late.
	w.exec(t, `ALTER TABLE catalog.video_projection ADD CONSTRAINT immortal CHECK (deleted_at IS NULL) NOT VALID`)
	w.remove(t, discarded)
	eventually(t, "the deletion is dead", func() bool { return w.inbox(t, discarded.ID, "dead") == 1 })
	w.exec(t, `ALTER TABLE catalog.video_projection DROP CONSTRAINT immortal`)
	dead := query[string](t, w, `SELECT event_id::text FROM catalog.inbox WHERE aggregate_id = $1 AND status = 'dead'`, discarded.ID)[0]
	o.types(t, "discard", "ID="+dead, "takes its owner's state first", "discarded")
	eventually(t, "the discarded deletion arrives", gone(discarded))
}
