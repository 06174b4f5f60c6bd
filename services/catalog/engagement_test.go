package catalog

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// like is an engagement of a test; at version n, n seconds have been watched.
type like struct{ user, video uuid.UUID }

func newLike() like { return like{uuid.New(), newVideoID()} }

func (l like) id() string { return l.user.String() + ":" + l.video.String() }

func (l like) put(version int64) eventing.Event {
	return l.event("EngagementPut", version, &engagementv1.Event{Payload: &engagementv1.Event_Put{Put: &engagementv1.EngagementPut{
		UserId: l.user.String(), VideoId: l.video.String(), Version: version, Liked: version%2 == 1, Bookmarked: version%2 == 0,
		WatchedSeconds: version, CreatedAt: pb(1),
	}}})
}

func (l like) deleted(version int64) eventing.Event {
	return l.event("EngagementDeleted", version, &engagementv1.Event{Payload: &engagementv1.Event_Deleted{Deleted: &engagementv1.EngagementDeleted{
		UserId: l.user.String(), VideoId: l.video.String(), Version: version, DeletedAt: pb(version),
	}}})
}

func (l like) event(name string, version int64, envelope *engagementv1.Event) eventing.Event {
	e := eventing.Event{
		ID: eventID(l.id(), version), AggregateType: "engagement", AggregateID: l.id(), Type: name,
		Version: version, SchemaVersion: 1, OccurredAt: at(version), Epoch: 1,
	}
	envelope.EventId, envelope.AggregateId, envelope.AggregateType = e.ID.String(), e.AggregateID, e.AggregateType
	envelope.Version, envelope.OccurredAt = version, pb(version)
	return withEngagement(e, envelope)
}

func withEngagement(e eventing.Event, envelope *engagementv1.Event) eventing.Event {
	var err error
	if e.Payload, err = proto.Marshal(envelope); err != nil {
		panic(err)
	}
	return e
}

// row is the projection's row after put(version), grave the one after deleted(version).
func (l like) row(version int64) Engagement {
	return Engagement{
		UserID: l.user, VideoID: l.video, Liked: version%2 == 1, Bookmarked: version%2 == 0, WatchedSeconds: version,
		Versioned: aliveAt(version),
	}
}

func (l like) grave(version int64) Engagement {
	return Engagement{UserID: l.user, VideoID: l.video, Versioned: graveAt(version)}
}

func (l like) owners(version int64) *videov1.Engagement {
	return &videov1.Engagement{
		UserId: l.user.String(), VideoId: l.video.String(), Liked: version%2 == 1, Bookmarked: version%2 == 0, WatchedSeconds: version,
		Version: version, Epoch: 1, CreatedAt: pb(1), UpdatedAt: pb(version),
	}
}

func (l like) ownersGrave(version int64) *videov1.Engagement {
	return &videov1.Engagement{
		UserId: l.user.String(), VideoId: l.video.String(), Version: version, Epoch: 1, CreatedAt: pb(1), UpdatedAt: pb(version), DeletedAt: pb(version),
	}
}

func (l like) position(version int64) consistency.Position {
	return consistency.Position{AggregateType: "engagement", AggregateID: l.id(), Epoch: 1, Version: version}
}

func (l like) token(version int64) string { return tokenOf(l.position(version)) }

// stored is the row, tombstones included; the zero Engagement where there is none.
func (f *fixture) stored(t testing.TB, l like) Engagement {
	t.Helper()
	rows, _ := f.pool.Query(t.Context(), `SELECT `+engagementColumns+` FROM video_user_engagements_projection
		WHERE user_id = $1 AND video_id = $2`, l.user, l.video)
	e, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[Engagement])
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return e
}

func (f *fixture) wantStored(t testing.TB, l like, want Engagement) {
	t.Helper()
	if diff := cmp.Diff(want, f.stored(t, l)); diff != "" {
		t.Fatalf("row (-want +got):\n%s", diff)
	}
}

func TestApplyTheLifeOfAnEngagement(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	f.must(t, inbox.Applied, l.put(1))
	f.wantStored(t, l, l.row(1))
	f.must(t, inbox.Applied, l.put(2))
	f.wantStored(t, l, l.row(2))
	f.must(t, inbox.Stale, l.put(1), l.put(2))
	f.must(t, inbox.Applied, l.deleted(3))
	f.wantStored(t, l, l.grave(3))
	f.must(t, inbox.Stale, l.put(2), l.deleted(3))
	f.must(t, inbox.Applied, l.put(4))
	f.wantStored(t, l, l.row(4))
	f.must(t, inbox.Stale, l.deleted(3))
	// Every event has the whole engagement: a missing one leaves no gap.
	f.must(t, inbox.Applied, l.put(9))
	f.wantStored(t, l, l.row(9))
	unasked(t, f)
}

// Several users and videos in one batch, with repeats, go to their own rows.
func TestABatchOfEngagements(t *testing.T) {
	t.Parallel()
	f, a := setUp(t), newLike()
	b, c := like{a.user, newVideoID()}, like{uuid.New(), a.video}
	f.must(t, inbox.Applied, c.put(1))
	changes := []inbox.Change{}
	for _, e := range []eventing.Event{a.put(1), a.put(2), b.put(1), b.deleted(2), c.put(1), c.put(2)} {
		change, err := engagements{}.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, change)
	}
	var outcomes []inbox.Outcome
	err := pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) (err error) {
		outcomes, err = f.projector.Handler().Apply(t.Context(), tx, changes)
		return err
	})
	want := []inbox.Outcome{inbox.Applied, inbox.Applied, inbox.Applied, inbox.Applied, inbox.Stale, inbox.Applied}
	if diff := cmp.Diff(want, outcomes); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	f.wantStored(t, a, a.row(2))
	f.wantStored(t, b, b.grave(2))
	f.wantStored(t, c, c.row(2))
}

func TestApplyRefusesEngagementsThatContradictThemselves(t *testing.T) {
	t.Parallel()
	f, l, other := setUp(t), newLike(), newLike()
	attributes := func(edit func(*eventing.Event)) eventing.Event {
		e := l.put(1)
		edit(&e)
		return e
	}
	envelope := func(edit func(*engagementv1.Event)) eventing.Event {
		var e engagementv1.Event
		if err := proto.Unmarshal(l.put(1).Payload, &e); err != nil {
			t.Fatal(err)
		}
		edit(&e)
		good := l.put(1)
		e.EventId = good.ID.String()
		return withEngagement(good, &e)
	}
	for name, tc := range map[string]struct {
		event eventing.Event
		says  string
	}{
		"payload is no protobuf":      {attributes(func(e *eventing.Event) { e.Payload = []byte("{}") }), "payload"},
		"payload is empty":            {attributes(func(e *eventing.Event) { e.Payload = nil }), "payload"},
		"unknown type":                {attributes(func(e *eventing.Event) { e.Type = "EngagementMuted" }), "event_type"},
		"unknown schema version":      {attributes(func(e *eventing.Event) { e.SchemaVersion = 2 }), "schema_version"},
		"id without a video":          {attributes(func(e *eventing.Event) { e.AggregateID = l.user.String() }), "video_id"},
		"id without a user":           {attributes(func(e *eventing.Event) { e.AggregateID = ":" + l.video.String() }), "user_id"},
		"id of three":                 {attributes(func(e *eventing.Event) { e.AggregateID += ":" + l.video.String() }), "video_id"},
		"id in capitals":              {attributes(func(e *eventing.Event) { e.AggregateID = strings.ToUpper(l.id()) }), "is not written as"},
		"id of another engagement":    {attributes(func(e *eventing.Event) { e.AggregateID = other.id() }), other.id()},
		"another event id":            {attributes(func(e *eventing.Event) { e.ID = other.user }), other.user.String()},
		"another version":             {attributes(func(e *eventing.Event) { e.Version = 7 }), "7"},
		"type of another payload":     {attributes(func(e *eventing.Event) { e.Type = "EngagementDeleted" }), "EngagementDeleted"},
		"envelope of another version": {envelope(func(e *engagementv1.Event) { e.Version = 2 }), "2"},
		"body of another version":     {envelope(func(e *engagementv1.Event) { e.GetPut().Version = 3 }), "3"},
		"body of another user":        {envelope(func(e *engagementv1.Event) { e.GetPut().UserId = other.user.String() }), other.user.String()},
		"body of another video":       {envelope(func(e *engagementv1.Event) { e.GetPut().VideoId = other.video.String() }), other.video.String()},
		"a video's event":             {attributes(func(e *eventing.Event) { e.AggregateType = "video" }), "aggregate_id"},
	} {
		if _, err := f.apply(t, tc.event); !eventing.IsPermanent(err) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want a permanent error that says %q", name, err, tc.says)
		}
	}
	f.wantStored(t, l, Engagement{})
	f.must(t, inbox.Applied, l.put(1))
}

// With any repetition, order and loss of events, the row ends in the state of the last
// of them, and never moves back.
func TestAnyDeliveryOfEngagementsConverges(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for seed := range uint64(25) {
		rnd, l := rand.New(rand.NewPCG(seed, 1)), newLike()
		var life []eventing.Event
		want, alive := Engagement{}, false
		for version := range int64(2 + rnd.IntN(6)) {
			if alive = !alive || rnd.IntN(2) == 0; alive {
				life, want = append(life, l.put(version+1)), l.row(version+1)
			} else {
				life, want = append(life, l.deleted(version+1)), l.grave(version+1)
			}
		}
		deliveries := append(append([]eventing.Event{}, life...), life...)
		rnd.Shuffle(len(deliveries), func(i, j int) { deliveries[i], deliveries[j] = deliveries[j], deliveries[i] })
		var reached int64
		for _, e := range append(deliveries[rnd.IntN(4):], life[len(life)-1]) {
			if o, err := f.apply(t, e); err != nil || o == inbox.Gap {
				t.Fatalf("seed %d: %s version %d: %v, %v", seed, e.Type, e.Version, o, err)
			}
			version := f.stored(t, l).Version
			if version < max(reached, e.Version) {
				t.Fatalf("seed %d: at version %d after %d had been there and %d was delivered", seed, version, reached, e.Version)
			}
			reached = version
		}
		f.wantStored(t, l, want)
	}
	unasked(t, f)
}

func TestRepairOfAnEngagement(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	repair := func(version int64) error { return f.projector.Handler().Repair(t.Context(), l.put(version)) }
	if err := repair(1); !eventing.IsPermanent(err) {
		t.Errorf("of one that the owner does not know: %v; want a permanent error", err)
	}
	f.peer.hasLike(l.owners(2))
	if err := repair(3); err == nil || eventing.IsPermanent(err) {
		t.Errorf("from an owner that is behind its event: %v; want an error that is worth another try", err)
	}
	f.wantStored(t, l, l.row(2))
	f.peer.hasLike(l.ownersGrave(5))
	if err := repair(3); err != nil {
		t.Fatal(err)
	}
	f.wantStored(t, l, l.grave(5))
	f.peer.hasLike(l.owners(7)) // put again
	if err := repair(6); err != nil {
		t.Fatal(err)
	}
	f.wantStored(t, l, l.row(7))
	f.must(t, inbox.Applied, l.deleted(8))
	if err := repair(6); err != nil { // the owner's answer was slow
		t.Fatal(err)
	}
	f.wantStored(t, l, l.grave(8))
	for name, edit := range map[string]func(*videov1.Engagement){
		"without a version":  func(e *videov1.Engagement) { e.Version = 0 },
		"without an epoch":   func(e *videov1.Engagement) { e.Epoch = 0 },
		"of another one":     func(e *videov1.Engagement) { e.UserId = e.GetVideoId() },
		"that is not there":  func(*videov1.Engagement) { f.peer.fails(status.Error(codes.Unavailable, "away")) },
		"that is misguided ": func(*videov1.Engagement) { f.peer.fails(status.Error(codes.Unimplemented, "an older release")) },
	} {
		e := l.owners(9)
		edit(e)
		f.peer.mu.Lock()
		f.peer.likes[l.id()] = e
		f.peer.mu.Unlock()
		if err := repair(9); err == nil || eventing.IsPermanent(err) {
			t.Errorf("from an owner %s: %v; want an error that is worth another try", name, err)
		}
	}
	f.wantStored(t, l, l.grave(8))
}
