package catalog

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

func TestADeletedVideoStaysDeleted(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, deletedEvent(id, 3))
	grave := f.row(t, id)
	f.must(t, inbox.Stale, createdEvent(id, 1, "late"), titled(id, 2, "late"))
	f.must(t, inbox.Gap, titled(id, 4, "against the contract"))
	f.peer.has(ownersVideo(id, 2, "of a replica that lags"))
	if err := f.projector.videos.Repair(t.Context(), titled(id, 4, "against the contract")); !errors.Is(err, inbox.ErrBehind) {
		t.Errorf("repair from an owner that is behind: %v", err)
	}
	if diff := cmp.Diff(grave, f.row(t, id)); diff != "" {
		t.Errorf("the tombstone changed (-before +after):\n%s", diff)
	}
}

// With any repetition, order and loss of events, and with gaps repaired, the row ends
// as if the events had come once and in order, and never moves back.
func TestAnyDeliveryConverges(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	const seeds = 25
	for seed := range uint64(seeds) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		id, calm := newVideoID(), newVideoID()
		story := func(id uuid.UUID) []eventing.Event {
			events := []eventing.Event{createdEvent(id, 1, "v1"), titled(id, 2, "v2"), titled(id, 3, "v3"),
				updatedEvent(id, 4, &eventsv1.VideoUpdated{Cleared: []string{"description"}})}
			if seed%2 == 0 {
				events = append(events, deletedEvent(id, 5))
			}
			return events
		}
		f.must(t, inbox.Applied, story(calm)...)
		want := f.row(t, calm)
		want.ID = id
		final := ownersVideo(id, 4, "v3")
		final.Description, final.DurationSeconds = "", 60
		if want.DeletedAt != nil {
			final = ownersTombstone(id, 5)
		}
		f.peer.has(final)

		events := story(id)
		deliveries := append(append([]eventing.Event{}, events...), events...)
		rnd.Shuffle(len(deliveries), func(i, j int) { deliveries[i], deliveries[j] = deliveries[j], deliveries[i] })
		deliveries = append(deliveries[rnd.IntN(4):], events[len(events)-1])
		var reached int64
		for _, e := range deliveries {
			outcome, err := f.apply(t, e)
			if err == nil && outcome == inbox.Gap {
				err = f.projector.videos.Repair(t.Context(), e)
			}
			if err != nil {
				t.Fatalf("seed %d: %s version %d: %v", seed, e.Type, e.Version, err)
			}
			v := f.row(t, id)
			if v.Version < max(reached, e.Version) {
				t.Fatalf("seed %d: at version %d after %d had been there and %d was delivered", seed, v.Version, reached, e.Version)
			}
			reached = v.Version
		}
		if diff := cmp.Diff(want, f.row(t, id)); diff != "" {
			t.Fatalf("seed %d: differs from the calm life (-want +got):\n%s", seed, diff)
		}
		drain(f.peer.asked)
	}
}

func drain(c chan struct{}) {
	for {
		select {
		case <-c:
		default:
			return
		}
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	t.Run("takes over the owner's newer state", func(t *testing.T) {
		id := newVideoID()
		f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
		f.peer.has(ownersVideo(id, 6, "sixth"))
		if err := f.projector.videos.Repair(t.Context(), titled(id, 4, "fourth")); err != nil {
			t.Fatal(err)
		}
		want := Video{
			ID: id, UploaderID: uploader, Title: "sixth", Description: "as its owner has it", DurationSeconds: 61,
			PublishedAt: atp(-1), Versioned: aliveAt(6),
		}
		if diff := cmp.Diff(want, f.row(t, id)); diff != "" {
			t.Errorf("row (-want +got):\n%s", diff)
		}
		f.must(t, inbox.Stale, titled(id, 4, "fourth"))
		f.must(t, inbox.Applied, titled(id, 7, "seventh"))
	})
	t.Run("takes over the owner's tombstone", func(t *testing.T) {
		id := newVideoID()
		f.peer.has(ownersTombstone(id, 6))
		if err := f.projector.videos.Repair(t.Context(), titled(id, 4, "fourth")); err != nil {
			t.Fatal(err)
		}
		want := Video{ID: id, Versioned: graveAt(6)}
		if diff := cmp.Diff(want, f.row(t, id)); diff != "" {
			t.Errorf("row (-want +got):\n%s", diff)
		}
	})
	t.Run("leaves a newer row alone", func(t *testing.T) {
		id := newVideoID()
		f.peer.has(ownersVideo(id, 6, "sixth"))
		f.must(t, inbox.Applied, deletedEvent(id, 7))
		if err := f.projector.videos.Repair(t.Context(), titled(id, 4, "fourth")); err != nil {
			t.Fatal(err)
		}
		if v := f.row(t, id); v.Version != 7 || v.DeletedAt == nil {
			t.Errorf("row %+v", v)
		}
	})
	t.Run("waits for an owner that is behind its event", func(t *testing.T) {
		id := newVideoID()
		f.peer.has(ownersVideo(id, 3, "third"))
		err := f.projector.videos.Repair(t.Context(), titled(id, 4, "fourth"))
		if err == nil || eventing.IsPermanent(err) {
			t.Errorf("%v; want an error that is worth another try", err)
		}
	})
	t.Run("gives up on a video that the owner does not know", func(t *testing.T) {
		err := f.projector.videos.Repair(t.Context(), titled(newVideoID(), 4, "fourth"))
		if !eventing.IsPermanent(err) {
			t.Errorf("%v; want a permanent error", err)
		}
	})
	t.Run("waits for an owner that does not know a young video", func(t *testing.T) {
		waitsForAnOwnerThatIsBehind(t, titled(newVideoID(), 4, "fourth"))
	})
	t.Run("waits for an owner that is away or talks nonsense", func(t *testing.T) {
		f, id := setUp(t), newVideoID()
		for _, edit := range []func(){
			func() { f.peer.fails(status.Error(codes.Unavailable, "gone fishing")) },
			func() { f.peer.fails(status.Error(codes.Internal, "oops")) },
			func() { f.peer.fails(nil); f.peer.has(ownersVideo(id, 0, "no version")) },
			func() { v := ownersVideo(id, 4, "no uploader"); v.UploaderId = ""; f.peer.has(v) },
			func() { v := ownersVideo(id, 4, "no epoch"); v.Epoch = 0; f.peer.has(v) },
			func() {
				f.peer.mu.Lock()
				defer f.peer.mu.Unlock()
				f.peer.videos[id.String()] = ownersVideo(newVideoID(), 4, "another video")
			},
		} {
			edit()
			err := f.projector.videos.Repair(t.Context(), titled(id, 4, "fourth"))
			if err == nil || eventing.IsPermanent(err) {
				t.Errorf("%v; want an error that is worth another try", err)
			}
		}
		if v := f.row(t, id); v.Version != 0 {
			t.Errorf("something was written: %+v", v)
		}
	})
}

func waitsForAnOwnerThatIsBehind(t *testing.T, e eventing.Event) {
	t.Helper()
	f := setUp(t)
	wantBehind := func(about string, want bool) {
		t.Helper()
		err := f.projector.Handler().Repair(t.Context(), e)
		if errors.Is(err, inbox.ErrBehind) != want || eventing.IsPermanent(err) == want {
			t.Errorf("%s: %v; want it behind: %v", about, err, want)
		}
	}
	wantBehind("old", false)
	f.peer.lacksAsOf(at(4))
	wantBehind("old, and the owner's answer is of its time", true)
	f.peer.lacksAsOf(at(5))
	wantBehind("old, and the owner's answer is of a minute after it", false)
	f.peer.lacksAsOf(time.Time{})
	e.OccurredAt = time.Now()
	wantBehind("young", true)
}

// The owner is asked outside any transaction: until it answers, others may write.
func TestRepairHoldsNoLockWhileItAsks(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	f.peer.has(ownersVideo(id, 3, "third"))
	f.peer.mu.Lock() // the peer does not answer until this is released
	repaired := make(chan error, 1)
	go func() { repaired <- f.projector.videos.Repair(t.Context(), titled(id, 3, "third")) }()
	<-f.peer.asked
	err := pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT FROM video_projection WHERE video_id = $1 FOR UPDATE NOWAIT`, id)
		return err
	})
	f.peer.mu.Unlock()
	if err != nil {
		t.Errorf("locked while the owner was asked: %v", err)
	}
	if err := <-repaired; err != nil {
		t.Error(err)
	}
}

// A dead letter has the id that its producer wrote. The owner is not asked for an id that it does not
// write so.
func TestRepairOfAnIDThatIsNotTheOwners(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.peer.has(ownersVideo(id, 6, "sixth"))
	f.refusesToRepair(t, titled(id, 4, "fourth"))
}

// refusesToRepair expects that e cannot be repaired if its id is spelled in another way.
func (f *fixture) refusesToRepair(t *testing.T, e eventing.Event) {
	t.Helper()
	for _, id := range []string{strings.ToUpper(e.AggregateID), "x" + e.AggregateID, ""} {
		odd := e
		odd.AggregateID = id
		if err := f.projector.Handler().Repair(t.Context(), odd); !eventing.IsPermanent(err) {
			t.Errorf("%s %q: %v, want a permanent error", e.AggregateType, id, err)
		}
	}
	unasked(t, f)
}
