package reads

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig/broker"
	"example.com/lockstep/lab/bench/rig/process"
	"example.com/lockstep/lab/bench/rig/readmodel"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/services/catalog"
)

// deskVideos is the number of videos to read.
const deskVideos = 400

// deskVideo is a video and its latest version.
type deskVideo struct {
	id      uuid.UUID
	version atomic.Int64
}

// desk is two instances of catalog on one database. The instance in this
// process gets its events from memory, so that the bench knows the time when
// each is applied. The other instance is a separate process, with a broker that
// has no messages for it.
type desk struct {
	service *catalog.Service
	waiters *consistency.Waiters
	other   *process.Server
	client  http.Client
	videos  []*deskVideo
	events  chan *pubsub.Message

	mu      sync.Mutex
	applied map[string]time.Time // the time of each video's last commit, by key
}

// withDesk measures while both instances run.
func withDesk(once func(context.Context, *desk, volume) (measure.Reading, error)) measure.Run {
	return func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		s, err := readmodel.Start(ctx)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		local, err := broker.StartProvisioned(ctx)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, local.Close()) }()
		d := &desk{events: make(chan *pubsub.Message), applied: map[string]time.Time{}}
		d.client.Transport = &http.Transport{MaxIdleConnsPerHost: waitLoad}
		defer d.client.CloseIdleConnections()
		environment := append(local.Environment(), "DATABASE_URL="+s.Pool.Config().ConnString(), "VIDEO_SERVICE_ADDR="+broker.Nobody)
		d.other, err = process.Start(ctx, environment, Command)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, d.other.Close()) }()
		stop, err := d.open(ctx, s)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err := d.fill(ctx); err != nil {
			return measure.Reading{}, err
		}
		return once(ctx, d, volumes[size])
	}
}

// open starts the instance in this process.
func (d *desk) open(ctx context.Context, s *readmodel.Store) (stop func() error, err error) {
	log := slog.New(slog.DiscardHandler)
	d.waiters = catalog.NewWaiters(catalog.MaxWaiting, s.Pool, "", log)
	projector := catalog.NewProjector(s.Pool, s.Owner, d.waiters, log)
	d.service = catalog.NewService(s.Pool, projector)
	client, err := broker.Unreachable(ctx)
	if err != nil {
		return nil, err
	}
	c, err := inbox.NewConsumer(s.Pool, client, catalog.Subscription, watched{projector.Handler(), d}, log, func() {}, inbox.Options{})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- d.waiters.Run(running, log, func() {}) }()
	go func() { ended <- c.RunFrom(running, d.receive) }()
	return func() error {
		cancel()
		return errors.Join(<-ended, <-ended, client.Close())
	}, nil
}

// watched is a handler with a Committed that records the time before it notifies
// the waiters.
type watched struct {
	inbox.Handler

	desk *desk
}

func (w watched) Committed(keys ...string) {
	now := time.Now()
	w.desk.mu.Lock()
	for _, key := range keys {
		w.desk.applied[key] = now
	}
	w.desk.mu.Unlock()
	w.Handler.Committed(keys...)
}

func (d *desk) receive(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
	for {
		select {
		case m := <-d.events:
			deliver(ctx, m)
		case <-ctx.Done():
			return nil
		}
	}
}

// deliver passes an event to the instance in this process.
func (d *desk) deliver(ctx context.Context, id uuid.UUID, version int64) error {
	e, err := readmodel.VideoEvent(id, version)
	if err != nil {
		return err
	}
	select {
	case d.events <- readmodel.Message(e, e.ID.String()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *desk) appliedAt(id uuid.UUID) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.applied[eventing.Key("video", id.String())]
}

// fill creates the videos, and returns when both instances return them.
func (d *desk) fill(ctx context.Context) error {
	for range deskVideos {
		v := &deskVideo{id: uuid.Must(uuid.NewV7())}
		d.videos = append(d.videos, v)
		if err := d.deliver(ctx, v.id, v.version.Add(1)); err != nil {
			return err
		}
	}
	for _, v := range d.videos {
		if _, err := d.readThere(ctx, v.id, videoToken(v.id, 1)); err != nil {
			return err
		}
	}
	return nil
}
