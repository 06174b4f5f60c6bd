package reads

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/services/catalog"
)

// harnessVideos is the number of videos to read.
const harnessVideos = 400

// harnessVideo is a video and its latest version.
type harnessVideo struct {
	id      uuid.UUID
	version atomic.Int64
}

// readHarness has two instances of catalog on one database. The instance in this process gets its
// events from memory. So the bench knows the time at which each event is applied. The other
// instance is in a separate process, with a broker that has no messages for it.
type readHarness struct {
	service *catalog.Service
	waiters *consistency.Waiters
	other   *rig.Process
	client  http.Client
	videos  []*harnessVideo
	events  chan *pubsub.Message
	closers []func() error // in the order of the starts

	mu      sync.Mutex
	applied map[string]time.Time // the time of each video's last commit, by key
}

// withHarness returns a run that calls once with a new harness.
func withHarness(once func(context.Context, *readHarness, volume) (measure.Reading, error)) measure.Run {
	return func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		h, err := startHarness(ctx)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, h.Close()) }()
		return once(ctx, h, volumes[size])
	}
}

// startHarness starts a harness. It returns when both instances show all videos. The caller must
// close the harness.
func startHarness(ctx context.Context) (_ *readHarness, err error) {
	h := &readHarness{events: make(chan *pubsub.Message), applied: map[string]time.Time{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	model, err := rig.StartReadModel(ctx)
	if err != nil {
		return nil, err
	}
	h.closers = append(h.closers, model.Close)
	if err := h.startOther(ctx, model); err != nil {
		return nil, err
	}
	if err := h.startHere(ctx, model); err != nil {
		return nil, err
	}
	err = h.fill(ctx)
	return h, err
}

// startOther starts the instance in the other process, and its broker.
func (h *readHarness) startOther(ctx context.Context, model *rig.ReadModel) error {
	local, err := rig.StartProvisionedBroker(ctx)
	if err != nil {
		return err
	}
	h.closers = append(h.closers, local.Close)
	h.client.Transport = &http.Transport{MaxIdleConnsPerHost: waitLoad}
	environment := append(local.Environment(), "DATABASE_URL="+model.Pool.Config().ConnString(), "VIDEO_SERVICE_ADDR="+rig.NoListener)
	if h.other, err = rig.StartProcess(ctx, environment, Command); err != nil {
		return err
	}
	h.closers = append(h.closers, h.other.Close)
	return nil
}

// startHere starts the instance in this process.
func (h *readHarness) startHere(ctx context.Context, model *rig.ReadModel) error {
	log := slog.New(slog.DiscardHandler)
	h.waiters = catalog.NewWaiters(catalog.MaxWaiting, model.Pool, "", log)
	projector := catalog.NewProjector(model.Pool, model.Owner, h.waiters, log)
	h.service = catalog.NewService(model.Pool, projector)
	client, err := rig.UnreachableClient(ctx)
	if err != nil {
		return err
	}
	h.closers = append(h.closers, client.Close)
	c := inbox.NewConsumer(model.Pool, client, catalog.Subscription, watched{projector.Handler(), h}, log, func() {}, inbox.Options{})
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- h.waiters.Run(running, log, func() {}) }()
	go func() { ended <- c.RunFrom(running, h.receive) }()
	h.closers = append(h.closers, func() error {
		cancel()
		return errors.Join(<-ended, <-ended)
	})
	return nil
}

// Close ends both instances, then the database.
func (h *readHarness) Close() error {
	h.client.CloseIdleConnections()
	var errs []error
	for _, closer := range slices.Backward(h.closers) {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// watched is a handler that records the time of each commit before it notifies the waiters.
type watched struct {
	inbox.Handler

	harness *readHarness
}

func (w watched) Committed(ctx context.Context, moved ...consistency.Position) {
	now := time.Now()
	w.harness.mu.Lock()
	for _, at := range moved {
		w.harness.applied[at.Key()] = now
	}
	w.harness.mu.Unlock()
	w.Handler.Committed(ctx, moved...)
}

func (h *readHarness) receive(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
	for {
		select {
		case m := <-h.events:
			deliver(ctx, m)
		case <-ctx.Done():
			return nil
		}
	}
}

// deliver passes an event to the instance in this process.
func (h *readHarness) deliver(ctx context.Context, id uuid.UUID, version int64) error {
	e, err := rig.VideoEvent(id, version)
	if err != nil {
		return err
	}
	select {
	case h.events <- rig.Message(e, e.ID.String()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *readHarness) appliedAt(id uuid.UUID) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.applied[eventing.Key("video", id.String())]
}

// fill creates the videos, and returns when both instances show them.
func (h *readHarness) fill(ctx context.Context) error {
	for range harnessVideos {
		v := &harnessVideo{id: uuid.Must(uuid.NewV7())}
		h.videos = append(h.videos, v)
		if err := h.deliver(ctx, v.id, v.version.Add(1)); err != nil {
			return err
		}
	}
	for _, v := range h.videos {
		if _, err := h.readThere(ctx, v.id, videoToken(v.id, 1)); err != nil {
			return err
		}
	}
	return nil
}
