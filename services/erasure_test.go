package services_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

// TestErasure writes a user's text to every place that can hold it, and erases it. Afterwards no
// table has it, versions have gone on, and neither a replay of all events nor a rebuild brings
// it back.
func TestErasure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	p := w.newPerson(t, o)
	want := []string{
		"catalog.operator_actions", "catalog.video_projection", "catalog.video_projection_shadow",
		"video.idempotency_keys", "video.operator_actions", "video.outbox", "video.videos",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, w.tablesWith(t, p.text)); diff != "" {
		t.Fatalf("tables with the user's text before the erasure (-want +got):\n%s", diff)
	}
	versions := p.versions(t)

	o.types(t, "erase", "USER_ID="+p.user, "videos: 5",
		"engagements: 1",
		"dead letters: 1", "aggregates of which the audit table keeps content: 2", "Nothing was changed", "Erased.")
	p.isErased(t, "after the erasure")
	for id, before := range versions {
		a := w.read(t, id, "", 0)
		if last := p.versions(t)[id]; a.code != http.StatusGone || last != before+1 && id != p.deleted {
			t.Errorf("video %s was at version %d, and is at %d; catalog answers %d", id, before, last, a.code)
		}
	}
	if a := w.read(t, p.kept.ID, "", 0); a.code != http.StatusOK || a.Title != "of another user" {
		t.Errorf("another user's video: %d %q", a.code, a.Title)
	}
	for _, schema := range []string{"video", "catalog"} {
		actions := query[string](t, w, `SELECT DISTINCT action FROM `+schema+`.operator_actions
			WHERE actor = 'ada' AND why = 'request 4711' AND (aggregate_type <> 'user' OR aggregate_id = $1) ORDER BY 1`, p.user)
		if !slices.Equal(actions, []string{"erase", "erased", "forget"}) {
			t.Errorf("%s: the audit table has %q", schema, actions)
		}
	}

	w.replayAll(t, "TRUNCATE catalog.inbox")
	p.isErased(t, "after a replay")
	w.sh(t, o, `catalog rebuild finish --yes --why test`)
	w.sh(t, o, `catalog rebuild run --disk-free "40 GB" --grace 1s --yes --why test`)
	p.isErased(t, "after a rebuild")
	w.sh(t, o, `catalog rebuild finish --yes --why test`)
	w.exec(t, "TRUNCATE catalog.video_user_engagements_projection, catalog.video_counters")
	w.replayAll(t, "TRUNCATE catalog.inbox, catalog.video_projection")
	p.isErased(t, "after a replay into empty tables")
	w.sh(t, o, `video erase --user `+p.user+` --yes --why again && catalog erase --user `+p.user+` --yes --why again`)
}

// An event that is not published keeps its place and its content. The command says so, and
// does the rest when it is run again.
func TestAnErasureWaitsForEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	mute := w.startMutedVideo(t)
	user, text := uuid.NewString(), "text"+strings.ReplaceAll(uuid.NewString(), "-", "")
	v := call(t, http.MethodPost, w.videos(""), nil, fields{"uploader_id": user, "title": text}).is(t, http.StatusCreated, 1)
	out, err := o.shell(t, "video erase --user "+user+" --wait 0s --yes --why test", "NOTHING=").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "left: events that are not published yet: 2") {
		t.Fatalf("%v %s", err, out)
	}
	if got := w.tablesWith(t, text); !slices.Equal(got, []string{"video.outbox"}) {
		t.Errorf("%q have the text, want the outbox alone", got)
	}
	mute()
	w.startVideo(t)
	w.startCatalog(t)
	w.sh(t, o, "video erase --user "+user+" --yes --why test")
	if got := w.tablesWith(t, text); slices.ContainsFunc(got, func(table string) bool { return strings.HasPrefix(table, "video.") }) {
		t.Errorf("%q have the text", got)
	}
	eventually(t, "the deletion arrives", func() bool { return w.read(t, v.ID, "", 0).code == http.StatusGone })
	if got := w.tablesWith(t, text); len(got) > 0 {
		t.Errorf("%q have the text", got)
	}
}

// TestErasureOfOddMessages: a message that is no event, or writes its id in another way, has a
// user's text, too. Its attributes say whose, also after it was discarded, when the audit
// table has it.
func TestErasureOfOddMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.startCatalog(t)
	user, text := uuid.NewString(), "text"+strings.ReplaceAll(uuid.NewString(), "-", "")
	v := call(t, http.MethodPost, w.videos(""), nil, fields{"uploader_id": user, "title": text}).is(t, http.StatusCreated, 1)
	w.reaches(t, v)
	e := w.events(t, v.ID)[0]
	for attribute, value := range map[string]string{"version": "two", "aggregate_id": strings.ToUpper(v.ID)} {
		for range 2 {
			e.ID = uuid.New()
			m := e.Message()
			m.OrderingKey, m.Attributes[attribute] = "", value
			w.publish(t, m)
		}
	}
	type letter struct {
		EventID   uuid.UUID `json:"event_id"`
		MessageID string    `json:"message_id"`
	}
	var list struct {
		Letters []letter `json:"dead_letters"`
	}
	eventually(t, "all messages are dead letters", func() bool {
		out, err := o.shell(t, "catalog dlq list --json", "NOTHING=").Output()
		if err != nil || json.Unmarshal(out, &list) != nil {
			t.Fatalf("list: %v %s", err, out)
		}
		return len(list.Letters) == 4
	})
	for _, event := range []bool{false, true} { // one of each is discarded
		i := slices.IndexFunc(list.Letters, func(l letter) bool { return (l.EventID != uuid.Nil) == event })
		id := list.Letters[i].MessageID
		if event {
			id = list.Letters[i].EventID.String()
		}
		w.sh(t, o, `catalog dlq discard `+id+` --yes --why test`)
	}
	w.sh(t, o, "video erase --user "+user+" --yes --why test && catalog erase --user "+user+" --yes --why test")
	if got := w.tablesWith(t, text); len(got) > 0 {
		t.Errorf("%q have the text", got)
	}
	if out, err := o.shell(t, "catalog dlq list --json", "NOTHING=").Output(); err != nil || !strings.Contains(string(out), `"dead_letters":[]`) {
		t.Errorf("dead letters are left: %v %s", err, out)
	}
}

// Another session holds the message of a dead letter. The letter is left, because its message comes
// back with the user's text, and the next command removes it.
func TestAnErasureLeavesALeasedDeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.startCatalog(t)
	user := uuid.NewString()
	v := call(t, http.MethodPost, w.videos(""), nil, fields{"uploader_id": user, "title": "text"}).is(t, http.StatusCreated, 1)
	w.reaches(t, v)
	e := w.events(t, v.ID)[0]
	e.ID = uuid.New()
	m := e.Message()
	m.OrderingKey, m.Attributes["aggregate_id"] = "", strings.ToUpper(v.ID)
	w.publish(t, m)
	letters := "projects/" + w.project + "/subscriptions/" + topics.DeadLetters(topics.Subscription(topics.Video, "catalog"))
	var held []string
	eventually(t, "the message is a dead letter", func() bool {
		res, err := w.broker.subscriber.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: letters, MaxMessages: 1,
			ReturnImmediately: true, //nolint:staticcheck // as in pull
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range res.GetReceivedMessages() {
			held = append(held, m.GetAckId())
		}
		return len(held) > 0
	})
	w.sh(t, o, "video erase --user "+user+" --yes --why test")
	erase := "catalog erase --user " + user + " --yes --why test"
	if out, err := o.shell(t, erase, "NOTHING=").CombinedOutput(); err == nil || !strings.Contains(string(out), "left: dead letters: 1") {
		t.Errorf("erase while another session has the message: %v\n%s", err, out)
	}
	if _, err := w.broker.subscriber.ModifyAckDeadline(t.Context(),
		&pubsubpb.ModifyAckDeadlineRequest{Subscription: letters, AckIds: held}); err != nil {
		t.Fatal(err)
	}
	w.sh(t, o, erase)
	if out, err := o.shell(t, "catalog dlq list --json", "NOTHING=").Output(); err != nil || !strings.Contains(string(out), `"dead_letters":[]`) {
		t.Errorf("dead letters are left: %v %s", err, out)
	}
}

// A dead letter cannot be given up before its owner's answer is from after its event. It is left, and holds up no other.
func TestALetterThatStaysHoldsUpNoErasure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.startCatalog(t)
	user := uuid.NewString()
	var ids []uuid.UUID
	for _, later := range []bool{true, false, true} {
		v := call(t, http.MethodPost, w.videos(""), nil, fields{"uploader_id": user, "title": "text"}).is(t, http.StatusCreated, 1)
		w.reaches(t, v)
		e := w.events(t, v.ID)[0]
		e.ID = uuid.New() // which is not the id in the payload
		if later {
			e.Epoch = 1 << 40
		}
		w.publish(t, unordered(e))
		ids = append(ids, e.ID)
	}
	eventually(t, "the messages are dead letters", func() bool {
		return query[int64](t, w, `SELECT count(*) FROM catalog.inbox WHERE event_id = ANY ($1) AND status = 'dead'`, ids)[0] == 3
	})
	w.sh(t, o, "video erase --user "+user+" --yes --why test")
	out, err := o.shell(t, "catalog erase --user "+user+" --yes --why test", "NOTHING=").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "left: dead letters: 2") {
		t.Errorf("erase: %v\n%s", err, out)
	}
	if n := query[int64](t, w, `SELECT count(*) FROM catalog.inbox WHERE event_id = $1 AND status = 'discarded'`, ids[1])[0]; n != 1 {
		t.Error("the letter between the others is not erased")
	}
}

// TestErasureOfVideosThatTheirOwnerLost: the owner cannot say whose they were. The audit table has
// the row of before its repair, as JSON or as text, and the row has the user.
func TestErasureOfVideosThatTheirOwnerLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.startCatalog(t)
	user, text, others := uuid.NewString(), "text"+strings.ReplaceAll(uuid.NewString(), "-", ""), "text of another user"
	const row, unprintable = `{"row": {"uploader_id": "%s", "title": "%s"}}`, `{"row": "{UploaderID:%s Title:%s}"}`
	for _, record := range []string{
		fmt.Sprintf(row, user, text), fmt.Sprintf(unprintable, user, text), fmt.Sprintf(row, uuid.NewString(), others),
	} {
		w.exec(t, `INSERT INTO catalog.operator_actions (action, actor, why, aggregate_type, aggregate_id, version, record)
			VALUES ('reconcile', 'bob', 'a restore', 'video', $1, 3, $2::text::jsonb)`, uuid.NewString(), record)
	}
	o.types(t, "erase", "USER_ID="+user, "Erased.")
	if got := w.tablesWith(t, text); len(got) > 0 {
		t.Errorf("%q have the user's text", got)
	}
	if got := w.tablesWith(t, others); !slices.Equal(got, []string{"catalog.operator_actions"}) {
		t.Errorf("%q have another user's text, want the audit table alone", got)
	}
}

// TestErasureOfDeadLettersThatTheirOwnerLost: no row is left that says whose these videos were. The event that made such a
// video says it, in the dead letters or, once it is discarded, in the audit table. The other events of the video
// belong to the same user.
func TestErasureOfDeadLettersThatTheirOwnerLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.startCatalog(t)
	user, text, others := uuid.NewString(), "text"+strings.ReplaceAll(uuid.NewString(), "-", ""), "text of another user"
	w.exec(t, `ALTER TABLE catalog.video_projection ADD CONSTRAINT alive CHECK (title NOT LIKE 'dead%')`)
	var discard []string
	for _, lost := range []struct{ user, text, discarded string }{
		{user, text, ""}, {user, text, "VideoCreated"}, {user, text, "VideoUpdated"}, {uuid.NewString(), others, ""},
	} {
		id := uuid.NewString()
		for _, e := range lostEvents(t, id, lost.user, "dead "+lost.text) {
			w.publish(t, unordered(e))
			eventually(t, "the event is a dead letter", func() bool {
				return query[int64](t, w, `SELECT count(*) FROM catalog.inbox WHERE event_id = $1 AND status = 'dead'`, e.ID)[0] == 1
			})
			if e.Type == lost.discarded {
				discard = append(discard, e.ID.String())
			}
		}
	}
	w.sh(t, o, `catalog dlq discard `+strings.Join(discard, " ")+` --yes --why test`)
	o.types(t, "erase", "USER_ID="+user, "dead letters: 4", "aggregates of which the audit table keeps content: 2", "Erased.")
	if got := w.tablesWith(t, text); len(got) > 0 {
		t.Errorf("%q have the user's text", got)
	}
	left, err := o.shell(t, "catalog dlq list --json", "NOTHING=").Output()
	if err != nil || strings.Count(string(left), `"event_id"`) != 2 {
		t.Errorf("%v, dead letters are left: %s\nwant those of another user", err, left)
	}
}

// lostEvents are events of a video that its owner does not know, from an hour ago.
func lostEvents(t *testing.T, id, user, title string) (events []eventing.Event) {
	t.Helper()
	for i, of := range []*eventsv1.Event{
		{Payload: &eventsv1.Event_Created{Created: &eventsv1.VideoCreated{VideoId: id, UploaderId: user, Title: title, Version: 1}}},
		{Payload: &eventsv1.Event_Updated{Updated: &eventsv1.VideoUpdated{VideoId: id, Title: &title, Version: 2}}},
	} {
		e := eventing.Event{
			ID: uuid.New(), AggregateType: "video", AggregateID: id, Type: []string{"VideoCreated", "VideoUpdated"}[i],
			Version: int64(i) + 1, SchemaVersion: 1, OccurredAt: time.Now().Add(-time.Hour), Epoch: eventing.FirstEpoch,
		}
		of.EventId, of.AggregateId, of.AggregateType, of.Version = e.ID.String(), id, e.AggregateType, e.Version
		var err error
		if e.Payload, err = proto.Marshal(of); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// person is a user whose text is everywhere.
type person struct {
	*world
	user, text string
	deleted    string // a video that they deleted themselves
	kept       answer // another user's
}

func (w *world) newPerson(t *testing.T, o *operator) *person {
	t.Helper()
	p := &person{world: w, user: uuid.NewString(), text: "text" + strings.ReplaceAll(uuid.NewString(), "-", "")}
	create := func(title string, header http.Header) answer {
		return call(t, http.MethodPost, w.videos(""), header, fields{"uploader_id": p.user, "title": title}).is(t, http.StatusCreated, 1)
	}
	mute := w.startMutedVideo(t) // so that an event can be parked
	skipped := create("skipped "+p.text, nil)
	event := w.park(t, skipped.ID, 1)
	mute()
	w.startVideo(t)
	w.startCatalog(t)
	w.sh(t, o, `video outbox skip `+event+` --yes --why test`)
	w.reaches(t, skipped)

	edited := create("edited "+p.text, http.Header{"Idempotency-Key": {"k"}})
	edited = w.update(t, edited, fields{"description": p.text})
	w.reaches(t, edited)
	w.exec(t, `UPDATE catalog.video_projection SET title = $2 WHERE video_id = $1::uuid`, edited.ID, "other "+p.text)
	w.sh(t, o, `catalog reconcile --grace 1s --repair --yes --why test`)

	gone := create("gone "+p.text, nil)
	call(t, http.MethodDelete, w.videos("/"+gone.ID)+"?reason="+p.text, nil, nil).is(t, http.StatusOK, 2)
	p.deleted = gone.ID

	// Two dead letters. One is discarded, whose message the audit table then has.
	w.exec(t, `ALTER TABLE catalog.video_projection ADD CONSTRAINT alive CHECK (title NOT LIKE 'dead%')`)
	discarded, dead := create("dead "+p.text, nil), create("dead too "+p.text, nil)
	for _, v := range []answer{discarded, dead} {
		eventually(t, "the event is dead", func() bool { return w.inbox(t, v.ID, "dead") == 1 })
	}
	w.exec(t, `ALTER TABLE catalog.video_projection DROP CONSTRAINT alive`)
	id := query[string](t, w, `SELECT event_id::text FROM catalog.inbox WHERE aggregate_id = $1`, discarded.ID)[0]
	w.sh(t, o, `catalog dlq discard `+id+` --yes --why test`)

	create("plain "+p.text, nil)
	p.kept = w.create(t, "of another user")
	a := call(t, http.MethodPut, w.engagement(p.user, p.kept.ID), nil, fields{"liked": true, "watched_seconds": 61}).is(t, http.StatusOK, 1)
	w.freshEngagements(t, p.user, a.Token)
	w.sh(t, o, `catalog rebuild run --disk-free "40 GB" --grace 1s --yes --why test`) // the copy of before stays
	return p
}

// versions are the owner's versions of the user's videos.
func (p *person) versions(t *testing.T) map[string]int64 {
	t.Helper()
	versions := map[string]int64{}
	for _, id := range query[string](t, p.world, `SELECT video_id::text FROM video.videos WHERE uploader_id = $1::uuid`, p.user) {
		versions[id] = query[int64](t, p.world, `SELECT version FROM video.videos WHERE video_id = $1::uuid`, id)[0]
	}
	return versions
}

// isErased fails the test if a table has the user's text or preferences.
func (p *person) isErased(t *testing.T, when string) {
	t.Helper()
	if got := p.tablesWith(t, p.text); len(got) > 0 {
		t.Errorf("%s: %q have the user's text", when, got)
	}
	for _, left := range []string{
		`SELECT count(*) FROM video.engagements WHERE user_id = $1::uuid AND (deleted_at IS NULL OR liked OR watched_seconds > 0)`,
		`SELECT count(*) FROM catalog.video_user_engagements_projection WHERE user_id = $1::uuid AND (deleted_at IS NULL OR liked OR watched_seconds > 0)`,
		`SELECT count(*) FROM video.outbox WHERE aggregate_id LIKE $1 || ':%' AND payload <> ''`,
		`SELECT count(*) FROM catalog.inbox WHERE status = 'dead' AND $1 <> ''`,
	} {
		if n := query[int64](t, p.world, left, p.user)[0]; n > 0 {
			t.Errorf("%s: %d rows: %s", when, n, left)
		}
	}
}

// tablesWith are the tables of both schemas that have the text: in a column of any type, in hex
// or base64.
func (w *world) tablesWith(t *testing.T, text string) (found []string) {
	t.Helper()
	forms := []string{text, hex.EncodeToString([]byte(text))}
	for offset := range 3 { // which of the three bytes of a group the text begins with
		code := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", offset) + text + "  "))
		forms = append(forms, code[4:len(code)-8])
	}
	for _, table := range query[string](t, w, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
		WHERE schemaname IN ('video', 'catalog') ORDER BY 1`) {
		rows := query[string](t, w, `SELECT to_jsonb(r)::text FROM `+table+` AS r`)
		if slices.ContainsFunc(rows, func(row string) bool {
			return slices.ContainsFunc(forms, func(form string) bool { return strings.Contains(row, form) })
		}) {
			found = append(found, table)
		}
	}
	slices.Sort(found)
	return found
}

// replayAll has the broker deliver all events again, after a change of catalog's tables, and
// waits until they are applied.
func (w *world) replayAll(t *testing.T, change string) {
	t.Helper()
	events := query[int64](t, w, `SELECT count(DISTINCT event_id) FROM catalog.inbox`)[0]
	w.exec(t, change)
	for _, subscription := range []string{
		topics.Subscription(topics.Video, topics.Catalog),
		engagementSubscription,
	} {
		w.seek(t, subscription, time.Now().Add(-time.Hour))
	}
	eventually(t, "all events are applied again", func() bool {
		return query[int64](t, w, `SELECT count(DISTINCT event_id) FROM catalog.inbox WHERE status = 'done'`)[0] >= events
	})
}

// sh runs a command that must succeed.
func (w *world) sh(t *testing.T, o *operator, line string) {
	t.Helper()
	if out, err := o.shell(t, line, "NOTHING=").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}
