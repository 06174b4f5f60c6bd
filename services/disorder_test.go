package services_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"

	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing/inbox"
)

// disorderEndsRight: version 3 comes first and makes a gap, which is repaired;
// then comes a shuffle of everything, twice.
func disorderEndsRight(t *testing.T, w *world) {
	const versions = 12
	w.startMutedVideo(t)
	w.startCatalog(t)
	v := w.create(t, "First cut")
	for v.Version < versions {
		v = w.update(t, v, fields{"duration_seconds": v.Version})
	}
	events := w.events(t, v.ID)

	w.publish(t, unordered(events[2]))
	w.reaches(t, v) // the repair takes it to the end at once
	messages := make([]*pubsubpb.PubsubMessage, 0, 2*versions)
	for _, e := range events {
		messages = append(messages, unordered(e), unordered(e))
	}
	rand.New(rand.NewPCG(3, 2)).Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	w.publish(t, messages...)
	eventually(t, "every event is settled", func() bool { return w.inbox(t, v.ID, "done") == versions })
	w.livedExactly(t, v.ID, versions)

	next := w.update(t, v, fields{"title": "Second cut"})
	w.publish(t, w.events(t, v.ID)[versions].Message())
	w.reaches(t, next)
	w.livedExactly(t, v.ID, versions, versions+1)
}

// deletedStaysDeleted: the update before the deletion arrives after it.
func deletedStaysDeleted(t *testing.T, w *world) {
	w.startMutedVideo(t)
	w.startCatalog(t)
	v := w.create(t, "First cut")
	gone := w.remove(t, w.update(t, v, fields{"title": "Second cut"}))
	events := w.events(t, v.ID)

	w.publish(t, unordered(events[0]))
	w.reaches(t, v)
	w.publish(t, unordered(events[2]))
	w.fresh(t, v.ID, gone.Token).is(t, http.StatusGone, 3)
	w.publish(t, unordered(events[1]), unordered(events[0]))
	eventually(t, "the late update is settled", func() bool { return w.inbox(t, v.ID, "done") == 3 })
	w.read(t, v.ID, "", 0).is(t, http.StatusGone, 3).from(t, "projection")
	w.livedExactly(t, v.ID, 1, 3)
	call(t, http.MethodPatch, w.videos("/"+v.ID), nil, fields{"title": "Third cut"}).is(t, http.StatusGone, 3)
}

// gapIsRepaired: the event of version 2 is lost for good before a relay sees it.
// Version 3 has only the fields that changed last, and must not be applied without
// version 2.
func gapIsRepaired(t *testing.T, w *world) {
	stopMuted := w.startMutedVideo(t)
	v := w.create(t, "First cut")
	v = w.update(t, v, fields{"description": "only in version 2"})
	v = w.update(t, v, fields{"title": "only in version 3"})
	w.exec(t, `DELETE FROM video.outbox WHERE version = 2`)
	stopMuted()

	w.startVideo(t)
	w.startCatalog(t)
	if read := w.reaches(t, v); read.Title != "only in version 3" || read.Description != "only in version 2" {
		t.Errorf("read %+v, want the fields of both versions", read)
	}
	w.livedExactly(t, v.ID, 1, 3)
}

// gapIsHeldWhileOwnerIsAway: the gap cannot be repaired, so the row stays at the last
// version without a gap, and a reader that demands more gets an error.
func gapIsHeldWhileOwnerIsAway(t *testing.T, w *world) {
	stopMuted := w.startMutedVideo(t)
	v := w.create(t, "First cut")
	v = w.update(t, v, fields{"description": "only in version 2"})
	v = w.update(t, v, fields{"title": "only in version 3"})
	events := w.events(t, v.ID)
	stopMuted()

	w.startCatalog(t)
	w.publish(t, events[0].Message(), events[2].Message())
	eventually(t, "version 3 is held", func() bool { return w.inbox(t, v.ID, "held") == 1 })
	w.read(t, v.ID, "", 0).is(t, http.StatusOK, 1).from(t, "projection")
	if a := w.read(t, v.ID, v.Token, 0); a.code != http.StatusServiceUnavailable || a.Reason != "NOT_FRESH_ENOUGH" {
		t.Errorf("answer is %d %s, want 503 NOT_FRESH_ENOUGH", a.code, a.Reason)
	}

	w.startMutedVideo(t)
	if read := w.reaches(t, v); read.Title != "only in version 3" || read.Description != "only in version 2" {
		t.Errorf("read %+v, want the fields of both versions", read)
	}
	eventually(t, "version 3 is settled", func() bool { return w.inbox(t, v.ID, "done") == 2 })
	w.livedExactly(t, v.ID, 1, 3)
}

// poisonGoesToTheDeadLetters: one message claims to be version 2 and has no content of
// that version, and one lacks the attributes of an event. The topic's schema accepts
// both. The real version 2 comes after them.
func poisonGoesToTheDeadLetters(t *testing.T, w *world) {
	w.startVideo(t)
	w.startCatalog(t)
	first := w.create(t, "First cut")
	w.reaches(t, first)

	garbled := w.events(t, first.ID)[0]
	garbled.ID, garbled.Version, garbled.Type, garbled.Payload = uuid.New(), 2, "VideoUpdated", []byte("\x0a\x07garbled")
	w.publish(t, garbled.Message(), &pubsubpb.PubsubMessage{Data: []byte("\x0a\x08no event"), OrderingKey: first.ID})
	second := w.update(t, first, fields{"title": "Second cut"})
	w.fresh(t, second.ID, second.Token).is(t, http.StatusOK, 2)

	var dead []*pubsubpb.PubsubMessage
	eventually(t, "both are in the dead letters", func() bool {
		messages, err := w.pull(t.Context(), topics.DeadLetters(topics.Subscription(topics.Video, topics.Catalog)))
		if err != nil {
			t.Fatal(err)
		}
		dead = append(dead, messages...)
		return len(dead) >= 2
	})
	for data, reason := range map[string]string{"\x0a\x07garbled": "payload", "\x0a\x08no event": "event_id"} {
		i := slices.IndexFunc(dead, func(m *pubsubpb.PubsubMessage) bool { return string(m.Data) == data })
		if i < 0 || !strings.Contains(dead[i].Attributes[inbox.AttrDeadLetterReason], reason) {
			t.Errorf("dead letters %v: want %q with a reason that names %s", dead, data, reason)
		}
	}
	// The dead letter is published before the row is marked.
	eventually(t, "one inbox row is dead", func() bool { return w.inbox(t, first.ID, "dead") == 1 })
	w.livedExactly(t, first.ID, 1, 2)
}
