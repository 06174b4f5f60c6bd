package services_test

import (
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/pkg/eventing"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
)

const engagementSubscription = topics.Engagement + "." + topics.Catalog

// recordSaves makes the database record each offset, and the greatest publish time of the
// inbox rows that the same transaction wrote.
func (w *world) recordSaves(t testing.TB) {
	t.Helper()
	w.exec(t, `
		CREATE TABLE offset_saves (place bigint GENERATED ALWAYS AS IDENTITY, tx xid8 DEFAULT pg_current_xact_id(), instance text, source text,
			publish_time timestamptz, lag_millis bigint);
		CREATE TABLE batch_rows (tx xid8 DEFAULT pg_current_xact_id(), publish_time timestamptz, done boolean);
		CREATE FUNCTION record_save() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			INSERT INTO public.offset_saves (instance, source, publish_time, lag_millis)
			VALUES (NEW.instance, NEW.source, NEW.publish_time, NEW.lag_millis);
			RETURN NULL;
		END $$;
		CREATE FUNCTION record_batch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			INSERT INTO public.batch_rows (publish_time, done) VALUES (NEW.publish_time, NEW.status = 'done');
			RETURN NULL;
		END $$;
		CREATE TRIGGER record_save AFTER INSERT OR UPDATE ON catalog.engagement_offsets FOR EACH ROW EXECUTE FUNCTION record_save();
		CREATE TRIGGER record_batch AFTER INSERT OR UPDATE ON catalog.inbox FOR EACH ROW
			WHEN (NEW.consumer = '`+engagementSubscription+`') EXECUTE FUNCTION record_batch()`)
}

// savesAreRight checks all recorded offsets, and returns the number of batches: each batch
// has saved one, which is not beyond the greatest publish time of the batch or of an earlier one of
// its instance, and not before the last. It is before the greatest publish time of its batch only if a message
// waited in hand, which a later batch has settled: then it is right before that message, or later. How many
// offsets are that depends on the load of the machine.
func (w *world) savesAreRight(t testing.TB) int64 {
	t.Helper()
	wrong := query[string](t, w, `
		WITH batches AS (SELECT tx, max(publish_time) AS greatest, min(publish_time) AS least FROM batch_rows GROUP BY tx HAVING bool_or(done)),
		     saves AS (SELECT s.tx, s.place, s.instance, s.publish_time, b.greatest,
		                      max(b.greatest) OVER (PARTITION BY s.instance ORDER BY s.place) AS expected,
		                      lag(s.publish_time) OVER (PARTITION BY s.instance ORDER BY s.place) AS before,
		                      min(b.least) OVER (ORDER BY s.place ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS later
		                 FROM offset_saves s LEFT JOIN batches b USING (tx) WHERE s.source = 'save')
		SELECT format('%s of %s: saved %s, the greatest is %s, before it was %s', place, instance, publish_time, expected, before)
		  FROM saves WHERE publish_time IS NULL OR publish_time > expected OR publish_time < before
		 UNION ALL
		SELECT format('%s of %s: saved %s, the greatest is %s, and the first that is settled later is %s', place, instance, publish_time, greatest, later)
		  FROM saves WHERE publish_time < least(greatest, later - interval '1 microsecond')
		 UNION ALL
		SELECT format('the batch %s saved %s offsets', b.tx, count(s.tx)) FROM batches b LEFT JOIN saves s USING (tx)
		 GROUP BY b.tx HAVING count(s.tx) <> 1
		 LIMIT 10`)
	for _, complaint := range wrong {
		t.Error(complaint)
	}
	return query[int64](t, w, `SELECT count(*) FROM offset_saves WHERE source = 'save'`)[0]
}

// put is a message about an engagement, as video sends it.
func put(t testing.TB, user, video string, version int64) *pubsubpb.PubsubMessage {
	t.Helper()
	e := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "engagement", AggregateID: user + ":" + video, Type: "EngagementPut",
		Version: version, SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.FirstEpoch,
	}
	payload, err := proto.Marshal(&engagementv1.Event{
		EventId: e.ID.String(), AggregateId: e.AggregateID, AggregateType: e.AggregateType, Version: version, OccurredAt: timestamppb.New(e.OccurredAt),
		Payload: &engagementv1.Event_Put{Put: &engagementv1.EngagementPut{
			UserId: user, VideoId: video, Version: version, WatchedSeconds: version, CreatedAt: timestamppb.New(e.OccurredAt),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Payload = payload
	return e.Message()
}

// TestOffsetsUnderKills sends engagements through three instances of catalog, which are
// killed one after the other. Each committed batch has saved its offset, and none went back.
//
// LOCKSTEP_FULL=1 sends 50,000 events; `make crash` sets it.
func TestOffsetsUnderKills(t *testing.T) {
	t.Parallel()
	events, kills := 1_500, 3
	if os.Getenv("LOCKSTEP_FULL") != "" {
		events, kills = 50_000, 15
	}
	const users, bundle = 50, 100
	w := newWorld(t, startBroker(t, broker.Local))
	w.recordSaves(t)
	fleet := make([]*spawned, 3)
	for i := range fleet {
		fleet[i] = w.spawnCatalog(t, porttest.Addr(t))
	}
	dice := rand.New(rand.NewPCG(5, 8)) // seeded, so that a failure comes again
	ids, versions, video := make([]string, users), make([]int64, users), uuid.NewString()
	for i := range ids {
		ids[i] = uuid.NewString()
	}
	for sent := 0; sent < events; {
		user := dice.IntN(users) // a request has one ordering key
		var messages []*pubsubpb.PubsubMessage
		for range min(1+dice.IntN(bundle), events-sent) {
			versions[user]++
			messages = append(messages, put(t, ids[user], video, versions[user]))
		}
		before := sent * kills / events
		sent += len(messages)
		w.publishTo(t, topics.Engagement, messages...)
		if after := sent * kills / events; after > before {
			victim := after % len(fleet)
			fleet[victim].ready(t)
			eventually(t, "it has applied events", func() bool { return w.done(t) > 0 })
			fleet[victim].kill(t)
			w.broker.expireLeases(t)
			fleet[victim] = w.spawnCatalog(t, fleet[victim].addr)
		}
	}
	eventually(t, "every event is settled", func() bool { return w.done(t) == int64(events) })
	batches := w.savesAreRight(t)
	instances := query[int64](t, w, `SELECT count(DISTINCT instance) FROM offset_saves`)[0]
	t.Logf("%d events in %d batches of %d instances, %d kills", events, batches, instances, kills)
	if instances < 2 {
		t.Errorf("%d instances have saved offsets", instances)
	}
	for i, id := range ids {
		if versions[i] == 0 {
			continue
		}
		got := query[int64](t, w, `SELECT watched_seconds FROM catalog.video_user_engagements_projection WHERE user_id = $1`, id)
		if !slices.Equal(got, []int64{versions[i]}) {
			t.Errorf("the projection of %s shows %v, want %d", id, got, versions[i])
		}
	}
}

// done counts the settled engagement events.
func (w *world) done(t testing.TB) int64 {
	t.Helper()
	return query[int64](t, w, `SELECT count(*) FROM catalog.inbox WHERE consumer = '`+engagementSubscription+`' AND status = 'done'`)[0]
}

// TestReplay resets the offset by the runbook's commands. The messages from then on come
// again, the projections stay as they are, row by row, and the lag rises and falls back.
func TestReplay(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, kind broker.Kind) {
		t.Parallel()
		if kind == broker.Official {
			w := newWorld(t, startBroker(t, kind))
			w.unorder(t)
			w.replay(t, func(time.Duration) {}, 0)
			return
		}
		// Messages of the last hour and from before it, by a clock that the test moves.
		clock := localpubsub.NewStillClock(time.Now().Add(-90 * time.Minute))
		server, err := localpubsub.Start(localpubsub.Options{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		b := &testBroker{kind: kind, addr: server.Addr()}
		b.dial(t)
		newWorld(t, b).replay(t, clock.Advance, 40*time.Minute)
	})
}

// unorder makes the subscription one without order: the emulator seeks on no other.
func (w *world) unorder(t testing.TB) {
	t.Helper()
	name := "projects/" + w.project + "/subscriptions/" + engagementSubscription
	if _, err := w.broker.subscriber.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: name}); err != nil {
		t.Fatal(err)
	}
	_, err := w.broker.subscriber.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: name, Topic: "projects/" + w.project + "/topics/" + topics.Engagement, RetainAckedMessages: true, AckDeadlineSeconds: 60,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// replay has a lag of at least that much in it. passes lets time pass at the broker, if it can.
func (w *world) replay(t *testing.T, passes func(time.Duration), lag time.Duration) {
	t.Helper()
	w.recordSaves(t)
	w.spawnVideo(t, w.videoAddr).ready(t)
	w.spawnCatalog(t, w.catalogAddr).ready(t)
	v, sent := w.create(t, "First cut"), int64(0)
	w.reaches(t, v)
	engage := func(users int) (last string) {
		t.Helper()
		for range users {
			last = uuid.NewString()
			write := w.engagement(last, v.ID)
			call(t, http.MethodPut, write, nil, fields{"liked": true}).is(t, http.StatusOK, 1)
			call(t, http.MethodPut, write, nil, fields{"watched_seconds": 7}).is(t, http.StatusOK, 2)
			sent += 2
		}
		eventually(t, "the engagements are applied", func() bool { return w.done(t) == sent })
		return last
	}
	engage(20)
	passes(45 * time.Minute)
	engage(40)
	passes(45 * time.Minute)
	newest := engage(1)
	const rows = `SELECT to_jsonb(p)::text FROM catalog.video_user_engagements_projection p
		UNION ALL SELECT to_jsonb(p)::text FROM catalog.video_projection p ORDER BY 1`
	before, lagBefore := query[string](t, w, rows), w.lag(t)

	hourAgo := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	reset, saves := time.Now(), query[int64](t, w, `SELECT count(*) FROM offset_saves`)[0]
	// Nothing else keeps all messages from coming in one batch, of which the newest has no lag.
	release := w.lockInbox(t, newest+":"+v.ID)
	w.operator(t).types(t, "replay", "TIME="+hourAgo.Format(time.RFC3339), "safe position", "Nothing was changed", engagementSubscription+" is at")
	const again = `SELECT count(*) FROM catalog.inbox
		WHERE consumer = '` + engagementSubscription + `' AND publish_time >= $1 AND last_seen_at > $2`
	const recent = `SELECT count(*) FROM catalog.inbox WHERE consumer = '` + engagementSubscription + `' AND publish_time >= $1`
	want := query[int64](t, w, recent, hourAgo)[0]
	var most int64
	eventually(t, "the lag rises", func() bool {
		most = query[int64](t, w, `SELECT coalesce(max(lag_millis), 0) FROM (SELECT lag_millis, source FROM offset_saves ORDER BY place OFFSET $1) AS s WHERE source = 'save'`, saves)[0]
		return time.Duration(most-lagBefore)*time.Millisecond > lag
	})
	release()
	eventually(t, "the last hour is replayed", func() bool { return query[int64](t, w, again, hourAgo, reset)[0] == want })
	t.Logf("%d of %d events are replayed", want, sent)
	if older := query[int64](t, w, `SELECT count(*) FROM catalog.inbox WHERE publish_time < $1 AND last_seen_at > $2`, hourAgo, reset)[0]; older != 0 {
		t.Errorf("%d older events are replayed", older)
	}
	if diff := cmp.Diff(before, query[string](t, w, rows)); diff != "" {
		t.Errorf("the replay changed a projection (-before +after):\n%s", diff)
	}
	engage(1)
	eventually(t, "the lag falls back", func() bool { return w.lag(t) < most })
	for name, least := range map[string]int64{"save": 1, "failure": 0} {
		if n, ok := counter(t, w.catalogAddr, "catalog_engagement_offset_"+name+"_total"); n < least || !ok {
			t.Errorf("%s is counted %d", name, n)
		}
	}
}

// lag is the lag that catalog's metrics show, in milliseconds.
func (w *world) lag(t testing.TB) int64 {
	t.Helper()
	var value int64
	eventually(t, "the lag is measured", func() (ok bool) {
		value, ok = counter(t, w.catalogAddr, "catalog_engagement_offset_lag_ms")
		return ok
	})
	return value
}

// counter reads a metric of one series.
func counter(t testing.TB, addr, name string) (value int64, ok bool) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + `\{[^}]*\} ([0-9.e+]+)$`).FindStringSubmatch(metrics(t, addr))
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(n), true
}
