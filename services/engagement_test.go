package services_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/session"
)

// engagement is where the engagement of a user with a video is written.
func (w *world) engagement(user, video string) string {
	return "http://" + w.videoAddr + "/v1/users/" + user + "/engagements/" + video
}

// engagements lists a user's engagements, no older than the token says.
func (w *world) engagements(t testing.TB, user, token, wait string) answer {
	t.Helper()
	header := http.Header{"Prefer": {"wait=" + wait}}
	if token != "" {
		header.Set("Consistency-Token", token)
	}
	return call(t, http.MethodGet, "http://"+w.catalogAddr+"/v1/users/"+user+"/engagements", header, nil)
}

// freshEngagements lists with a token until the projection has what it demands.
func (w *world) freshEngagements(t testing.TB, user, token string) answer {
	t.Helper()
	return ofProjection(t, func() answer { return w.engagements(t, user, token, "10") })
}

// shows fails the test unless the list is just that.
func (a answer) shows(t testing.TB, want ...liked) answer {
	t.Helper()
	if diff := cmp.Diff(append([]liked{}, want...), a.Engagements); a.code != http.StatusOK || diff != "" {
		t.Fatalf("%d %s (-want +listed):\n%s", a.code, a.Reason, diff)
	}
	return a
}

// engagementReturns is the life of an engagement: each write answers with a token,
// and the user's list with that token shows the write. After its deletion the
// versions go on, at the owner and in the projection.
func engagementReturns(t *testing.T, w *world) {
	w.startVideo(t)
	w.startCatalog(t)
	user, v := uuid.NewString(), w.create(t, "First cut")
	write := w.engagement(user, v.ID)

	a := call(t, http.MethodPut, write, nil, fields{"liked": true}).is(t, http.StatusOK, 1)
	w.freshEngagements(t, user, a.Token).shows(t, liked{VideoID: v.ID, Liked: true, Version: 1})
	call(t, http.MethodPut, write, nil, fields{"liked": true}).is(t, http.StatusOK, 1) // no change
	a = call(t, http.MethodPut, write, nil, fields{"bookmarked": true, "watched_seconds": 7}).is(t, http.StatusOK, 2)
	w.freshEngagements(t, user, a.Token).shows(t, liked{VideoID: v.ID, Bookmarked: true, WatchedSeconds: 7, Version: 2})
	a = call(t, http.MethodDelete, write, nil, nil).is(t, http.StatusOK, 3)
	w.freshEngagements(t, user, a.Token).shows(t)
	call(t, http.MethodDelete, write, nil, nil).is(t, http.StatusGone, 3)
	a = call(t, http.MethodPut, write, nil, fields{"liked": true}).is(t, http.StatusOK, 4)
	w.freshEngagements(t, user, a.Token).shows(t, liked{VideoID: v.ID, Liked: true, Version: 4})
	w.livedExactly(t, user+":"+v.ID, 1, 2, 3, 4)

	w.remove(t, v)
	call(t, http.MethodPut, write, nil, fields{"liked": false}).is(t, http.StatusGone, 2) // of the video
	a = call(t, http.MethodDelete, write, nil, nil).is(t, http.StatusOK, 5)
	w.freshEngagements(t, user, a.Token).shows(t)
	w.countedAsOwned(t)
}

// sessionSeesItsEngagements: a session's token names videos and engagements alike.
func sessionSeesItsEngagements(t *testing.T, w *world) {
	w.startVideo(t)
	w.startCatalog(t)
	c, ctx := caller{client: http.Client{Transport: session.Transport{}}}, session.With(t.Context(), new(session.Session))
	must := func(method, url, body string) (a answer) {
		t.Helper()
		if err := c.call(ctx, method, url, body, &a); err != nil {
			t.Fatal(err)
		}
		a.code = http.StatusOK
		return a
	}
	user, other := uuid.NewString(), uuid.NewString()
	lists := "http://" + w.catalogAddr + "/v1/users/"
	var want []liked
	for n := range int64(6) {
		v := must(http.MethodPost, w.videos(""), `{"uploader_id":"`+uploader+`","title":"x"}`)
		must(http.MethodPut, w.engagement(user, v.ID), fmt.Sprintf(`{"watched_seconds":%d}`, n))
		must(http.MethodPut, w.engagement(other, v.ID), `{"liked":true}`)
		must(http.MethodDelete, w.engagement(other, v.ID), "")
		want = append([]liked{{VideoID: v.ID, WatchedSeconds: n, Version: 1}}, want...)
		must(http.MethodGet, lists+user+"/engagements", "").shows(t, want...)
		must(http.MethodGet, lists+other+"/engagements", "").shows(t)
		if list := must(http.MethodGet, "http://"+w.catalogAddr+"/v1/videos?page_size=1", ""); list.Videos[0].ID != v.ID {
			t.Errorf("listed %+v, want %s", list.Videos, v.ID)
		}
	}
	w.countedAsOwned(t)
}

// engagementDisorderEndsRight: the broker repeats and reorders messages; if a reader
// cannot wait for them, the list is brought forward from the owner.
func engagementDisorderEndsRight(t *testing.T, w *world) {
	w.startMutedVideo(t)
	w.startCatalog(t)
	user, v := uuid.NewString(), w.create(t, "First cut")
	write, id := w.engagement(user, v.ID), user+":"+v.ID
	for version := int64(1); version <= 9; version++ {
		if version%3 == 0 {
			call(t, http.MethodDelete, write, nil, nil).is(t, http.StatusOK, version)
			continue
		}
		call(t, http.MethodPut, write, nil, fields{"watched_seconds": version}).is(t, http.StatusOK, version)
	}
	last := call(t, http.MethodPut, write, nil, fields{"liked": true}).is(t, http.StatusOK, 10)
	w.engagements(t, user, "", "0").shows(t)
	final := liked{VideoID: v.ID, Liked: true, Version: 10}
	events := w.events(t, id)
	w.publishTo(t, topics.Engagement, unordered(events[3]))
	eventually(t, "version 4 is there", func() bool {
		a := w.engagements(t, user, "", "0")
		return len(a.Engagements) == 1 && a.Engagements[0].Version == 4
	})
	eventually(t, "the owner answers", func() bool {
		a := w.engagements(t, user, last.Token, "0")
		return a.Reason != "NOT_FRESH_ENOUGH" && len(a.from(t, "authority").shows(t, final).Engagements) == 1
	})

	var messages []*pubsubpb.PubsubMessage
	for _, e := range events {
		messages = append(messages, unordered(e), unordered(e))
	}
	rand.New(rand.NewPCG(3, 2)).Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	w.publishTo(t, topics.Engagement, messages...)
	eventually(t, "every event is settled", func() bool { return w.inbox(t, id, "done") == int64(len(events)) })
	w.engagements(t, user, last.Token, "0").from(t, "projection").shows(t, final)
	w.livedExactly(t, id, 4, 10)
	w.countedAsOwned(t)
}

// engagementDeadLetters: a message of one topic that cannot be processed ends in that
// topic's dead letters, and the messages behind it are applied. A schema of the topic
// would accept this message.
func engagementDeadLetters(t *testing.T, w *world) {
	w.startVideo(t)
	w.startCatalog(t)
	user, v := uuid.NewString(), w.create(t, "First cut")
	first := call(t, http.MethodPut, w.engagement(user, v.ID), nil, fields{"liked": true}).is(t, http.StatusOK, 1)
	w.engagements(t, user, first.Token, "10").shows(t, liked{VideoID: v.ID, Liked: true, Version: 1})

	garbled := w.events(t, user+":"+v.ID)[0]
	garbled.ID, garbled.Version, garbled.Payload = uuid.New(), 2, []byte("\x0a\x07garbled")
	w.publishTo(t, topics.Engagement, garbled.Message())
	second := call(t, http.MethodDelete, w.engagement(user, v.ID), nil, nil).is(t, http.StatusOK, 2)
	w.freshEngagements(t, user, second.Token).shows(t)
	eventually(t, "it is in the dead letters", func() bool {
		dead, err := w.pull(t.Context(), topics.DeadLetters(topics.Subscription(topics.Engagement, topics.Catalog)))
		if err != nil {
			t.Fatal(err)
		}
		return len(dead) == 1 && string(dead[0].Data) == "\x0a\x07garbled" && strings.Contains(dead[0].Attributes[inbox.AttrDeadLetterReason], "payload")
	})
	// The dead letter is published before the row is marked.
	eventually(t, "one inbox row is dead", func() bool { return w.inbox(t, user+":"+v.ID, "dead") == 1 })
	w.livedExactly(t, user+":"+v.ID, 1, 2)
	w.countedAsOwned(t)
}

// The event of a deletion was deleted by hand. The user engages again, which the outbox refuses until an operator
// allows the hole.
func TestAHoleBehindADeletedEngagement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	mute := w.startMutedVideo(t)
	user, v := uuid.NewString(), w.create(t, "First cut")
	write, id := w.engagement(user, v.ID), user+":"+v.ID
	call(t, http.MethodPut, write, nil, fields{"liked": true}).is(t, http.StatusOK, 1)
	call(t, http.MethodDelete, write, nil, nil).is(t, http.StatusOK, 2)
	mute()
	w.exec(t, `DELETE FROM video.outbox WHERE aggregate_id = $1 AND version = 2`, id)
	w.startVideo(t)
	w.startCatalog(t)
	if a := call(t, http.MethodPut, write, nil, fields{"liked": true}); a.code < http.StatusInternalServerError {
		t.Fatalf("a write behind a lost event is answered %d", a.code)
	}
	o.types(t, "allow", "AGGREGATE="+id, "engagement/"+id+" is at version 2", "refuses version 3", "It is deleted.", "Allowed.")
	a := call(t, http.MethodPut, write, nil, fields{"liked": true}).is(t, http.StatusOK, 3)
	w.freshEngagements(t, user, a.Token).shows(t, liked{VideoID: v.ID, Liked: true, Version: 3})
}
