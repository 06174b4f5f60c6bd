package services_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/topics"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

// TestNodeReader holds the contract of docs/events.md: a reader in another language that keeps its rules
// has catalog's rows at the end. LOCKSTEP_READER is the folder of clients/reader with its packages; `make
// clients-check` sets it. The test is not parallel, because the services of this process find one broker at a time.
func TestNodeReader(t *testing.T) {
	dir := os.Getenv("LOCKSTEP_READER")
	if dir == "" {
		t.Skip("make clients-check installs the reader's packages and runs this test")
	}
	b := startBroker(t, broker.Local)
	t.Setenv(emulatorHost, b.addr)
	w := newWorld(t, b)
	stop := w.startVideo(t)
	w.startCatalog(t)

	early := w.create(t, "from before the subscription")
	gone := w.remove(t, w.create(t, "deleted before the subscription"))
	w.reaches(t, early)
	eventually(t, "the deletion is published", func() bool { return w.read(t, gone.ID, "", 0).code == http.StatusGone })
	w.subscribe(t, "reader")
	r := w.startReader(t, dir)

	b.setFaults(t, `{"kind":"repeat","probability":0.3},{"kind":"resend","probability":0.3},{"kind":"ack_lost","probability":0.1}`)
	written := w.writeVideos(t)
	r.reaches(t, written[0])
	r.kill(t)
	b.expireLeases(t)
	r = w.startReader(t, dir)
	written[1] = w.update(t, written[1], fields{"title": "the first event of a row that the owner gave"})
	later := w.writeVideos(t)
	for _, v := range append(later, written[1]) {
		r.reaches(t, v)
	}
	b.setFaults(t, "")
	w.poison(t, written[0].ID)

	// Events that never come: one is lost, and one was given up by its owner's operator.
	stop()
	stop = w.startMutedVideo(t)
	lost, skipped := w.threeVersions(t), w.threeVersions(t)
	w.exec(t, `DELETE FROM video.outbox WHERE aggregate_id = $1 AND version = 2`, lost.ID)
	w.exec(t, `UPDATE video.outbox SET event_type = 'Skipped', payload = '' WHERE aggregate_id = $1 AND version = 3`, skipped.ID)
	stop()
	w.startVideo(t)
	r.reaches(t, lost)
	r.reaches(t, skipped)

	// An event of commits that the owner lost: its next event has the same version.
	w.publish(t, w.eventOfALostCommit(t, early.ID))
	eventually(t, "the reader has the lost version", func() bool { return r.row(early.ID) == 2 })
	divergent := w.update(t, early, fields{"title": "made after the loss"})
	eventually(t, "the reader has met the other history", func() bool { return r.count("diverged") > 0 })

	eventually(t, "the poison is dead", func() bool { return r.count("dead") == 1 })
	letters, err := w.pull(t.Context(), topics.DeadLetters(topics.Subscription(topics.Video, "reader")))
	if err != nil || len(letters) != 1 || letters[0].GetAttributes()["dead_letter_reason"] == "" {
		t.Errorf("dead letters %v, %v: want one, with its reason", letters, err)
	}
	rows := r.end(t)
	for _, v := range slices.Concat(written, later, []answer{gone, lost, skipped, divergent}) {
		w.reaches(t, v)
		if got, want := rows[v.ID], w.catalogs(t, v.ID); got != want {
			t.Errorf("%s: the reader has %+v, catalog has %+v", v.ID, got, want)
		}
	}
	if n := len(query[string](t, w, `SELECT video_id::text FROM catalog.video_projection`)); len(rows) != n {
		t.Errorf("the reader has %d rows, catalog has %d", len(rows), n)
	}
	if r.count("gap") < 2 {
		t.Errorf("%d gaps, want one of the lost and one of the skipped event", r.count("gap"))
	}
}

// subscribe makes a reader's subscription and its dead letters, as docs/events.md has them.
func (w *world) subscribe(t testing.TB, reader string) {
	t.Helper()
	name := topics.Subscription(topics.Video, reader)
	dead := topics.DeadLetters(name)
	if _, err := w.broker.publisher.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topics.InProject(w.project, dead)}); err != nil {
		t.Fatal(err)
	}
	for subscription, topic := range map[string]string{name: topics.Video, dead: dead} {
		_, err := w.broker.subscriber.CreateSubscription(t.Context(), &pubsubpb.Subscription{
			Name:  "projects/" + w.project + "/subscriptions/" + subscription,
			Topic: topics.InProject(w.project, topic), EnableMessageOrdering: topic == topics.Video, AckDeadlineSeconds: 60,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// writeVideos writes the lives of several videos at once, and returns the last answer about each.
func (w *world) writeVideos(t *testing.T) []answer {
	t.Helper()
	last := make([]answer, 12)
	var writers sync.WaitGroup
	for i := range last {
		writers.Go(func() {
			v := w.create(t, "First cut")
			v = w.update(t, v, fields{"description": "long", "duration_seconds": 60, "published_at": "2026-03-04T05:06:07.891011Z"})
			v = w.update(t, v, fields{"title": "Second cut"})
			v = w.update(t, v, fields{"description": nil, "published_at": nil})
			if i%3 == 0 {
				v = w.remove(t, v)
			}
			last[i] = v
		})
	}
	writers.Wait()
	return last
}

// threeVersions writes a video whose versions 2 and 3 change different fields.
func (w *world) threeVersions(t testing.TB) answer {
	t.Helper()
	v := w.update(t, w.create(t, "First cut"), fields{"description": "only in version 2"})
	return w.update(t, v, fields{"title": "only in version 3"})
}

// poison publishes a message of the video whose payload is of another event than its attributes.
func (w *world) poison(t testing.TB, id string) {
	t.Helper()
	e := w.events(t, id)[0]
	e.ID, e.Version = uuid.New(), 99
	w.publish(t, e.Message())
}

// eventOfALostCommit is an event that follows the video's newest one, and is not in the owner's tables.
func (w *world) eventOfALostCommit(t testing.TB, id string) *pubsubpb.PubsubMessage {
	t.Helper()
	events := w.events(t, id)
	e := events[len(events)-1]
	e.PreviousEventID, e.ID, e.Type, e.Version, e.OccurredAt = e.ID, uuid.New(), "VideoUpdated", e.Version+1, e.OccurredAt.Add(time.Microsecond)
	payload, err := proto.Marshal(&eventsv1.Event{
		EventId: e.ID.String(), EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_UPDATED, AggregateId: id, AggregateType: e.AggregateType,
		Version: e.Version, OccurredAt: timestamppb.New(e.OccurredAt),
		Payload: &eventsv1.Event_Updated{Updated: &eventsv1.VideoUpdated{VideoId: id, Version: e.Version, Description: new("lost")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Payload = payload
	return e.Message()
}

// copied is a row as the reader prints it, and as catalog answers. A tombstone has its version only.
type copied struct {
	Version         int64     `json:"version"`
	Deleted         bool      `json:"deleted"`
	UploaderID      string    `json:"uploader_id"`
	Title           string    `json:"title"`
	Description     string    `json:"description"`
	DurationSeconds int64     `json:"duration_seconds"`
	PublishedAt     time.Time `json:"published_at"`
}

func (w *world) catalogs(t testing.TB, id string) (c copied) {
	t.Helper()
	res, err := http.Get("http://" + w.catalogAddr + "/v1/videos/" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&c); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode == http.StatusGone {
		return copied{Version: c.Version, Deleted: true}
	}
	return c
}
