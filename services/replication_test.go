package services_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

// TestNothingLeavesWithoutTheStandby: under synchronous replication an event that only
// the primary has is not published, not even one that is visible there because its
// writer did not wait. The relay's claim is a write. Its commit waits until the standby
// has everything before it; the claim's own deadline ends the wait with an error.
func TestNothingLeavesWithoutTheStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t, true)
	w := p.world(t, startBroker(t, broker.Local))
	r := w.record(t)
	w.spawnVideo(t, w.videoAddr).ready(t)
	// The relay is working: it has its row among the relays, which is a commit, too.
	first := anEvent()
	p.append(t, first, "on")
	eventually(t, "an event is published with the standby connected", r.has(first))
	p.standby.crash(t)
	p.standby = nil

	e := anEvent()
	p.append(t, e, "local")
	eventually(t, "the relay's claim waits for the standby", func() bool { return p.waiting(t) > 0 })
	eventually(t, "the claim was given up, and its lease is there", func() bool {
		return p.primary.ask(t, `SELECT count(*) FROM video.outbox WHERE locked_at IS NOT NULL`) == 1
	})
	back := time.Now()
	p.replicate(t)
	eventually(t, "the event is published", r.has(e))
	for _, r := range r.seen() {
		if r.Event == e.ID.String() && r.At.Before(back) {
			t.Errorf("the event was published at %s, before a standby had it, which was after %s", r.At, back)
		}
	}
}

// TestARepeatedWriteWaitsForTheStandby: a write whose standby does not answer ends with an error, and is
// committed on the primary all the same. Its repetition finds the stored answer there. That answer confirms
// the write, so it waits for the standby, too.
func TestARepeatedWriteWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t, true)
	w := p.world(t, startBroker(t, broker.Local))
	w.spawnVideo(t, w.videoAddr).ready(t)
	v := w.create(t, "before")
	writes := map[string]func() answer{
		http.MethodPost: func() answer {
			return call(t, http.MethodPost, w.videos(""), http.Header{"Idempotency-Key": {"a"}}, fields{"uploader_id": uploader, "title": "new"})
		},
		http.MethodPatch: func() answer {
			return call(t, http.MethodPatch, w.videos("/"+v.ID), http.Header{"Idempotency-Key": {"b"}}, fields{"title": "changed"})
		},
	}
	p.standby.crash(t)
	p.standby = nil
	for _, attempt := range []string{"first", "repeated"} {
		var all sync.WaitGroup
		for method, write := range writes {
			all.Go(func() {
				if a := write(); a.code < http.StatusInternalServerError {
					t.Errorf("%s, %s, without a standby: %d, version %d", method, attempt, a.code, a.Version)
				}
			})
		}
		all.Wait()
		eventually(t, "the answers are stored, once the sessions that waited have ended", func() bool {
			return p.primary.ask(t, `SELECT count(*) FROM video.idempotency_keys`) == len(writes)
		})
	}
	// Without a key the repetition changes nothing, but its answer shows the write, too.
	if a := call(t, http.MethodPatch, w.videos("/"+v.ID), nil, fields{"title": "changed"}); a.code < http.StatusInternalServerError {
		t.Errorf("PATCH, without a key, without a standby: %d, version %d", a.code, a.Version)
	}
	p.replicate(t)
	for method, write := range writes {
		if a := write(); a.code >= http.StatusMultipleChoices || a.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s, with a standby: %d, %v", method, a.code, a.header)
		}
	}
}

func anEvent() eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: uuid.NewString(), Type: "VideoUpdated", Version: 1,
		SchemaVersion: 1, OccurredAt: time.Now().UTC().Truncate(time.Microsecond), Epoch: eventing.FirstEpoch,
	}
}

// append commits e. commit is the synchronous_commit of its transaction.
func (p *pair) append(t *testing.T, e eventing.Event, commit string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), p.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL synchronous_commit = `+commit+`; SET LOCAL search_path = video`); err != nil {
			return err
		}
		return outbox.Append(t.Context(), tx, nil, e)
	})
	if err != nil {
		t.Fatal(err)
	}
}
