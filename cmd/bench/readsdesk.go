package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/rig/broker"
	"example.com/lockstep/cmd/bench/rig/process"
	"example.com/lockstep/cmd/bench/rig/readmodel"
	"example.com/lockstep/internal/env"
	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/services/catalog"
)

// catalogCommand makes this binary an instance of catalog, which reads its
// environment as the deployed one does.
const catalogCommand = "catalog"

// serveCatalog serves on a free port until ctx ends, and prints where.
func serveCatalog(ctx context.Context, stdout io.Writer) (err error) {
	r := env.New(os.Getenv)
	cfg := catalog.ReadConfig(r)
	if err := r.Err(); err != nil {
		return err
	}
	stop, err := telemetry.Setup(ctx, "catalog") // reads are counted, as in production
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(context.WithoutCancel(ctx))) }()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	process.Ready(stdout, lis.Addr().String(), os.Getpid())
	return catalog.Serve(ctx, cfg, lis, slog.New(slog.DiscardHandler))
}

// deskVideos is how many videos there are to be read.
const deskVideos = 400

// deskVideo is a video, and the version that its next event follows.
type deskVideo struct {
	id      uuid.UUID
	version atomic.Int64
}

// desk is two instances of catalog on one database. The one in this process has
// its events from memory, so that the bench knows when each is applied. The other
// is a process of its own, with a broker that has nothing for it.
type desk struct {
	service *catalog.Service
	waiters *consistency.Waiters
	other   *process.Server
	client  http.Client
	videos  []*deskVideo
	events  chan *pubsub.Message

	mu      sync.Mutex
	applied map[string]time.Time // when the last commit of each video was done, by key
}

// withDesk measures while both instances run.
func withDesk(once func(context.Context, *desk, measure.Size) (measure.Reading, error)) measure.Run {
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
		d.other, err = process.Start(ctx, environment, catalogCommand)
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
		return once(ctx, d, size)
	}
}

// open starts the instance in this process.
func (d *desk) open(ctx context.Context, s *readmodel.Store) (stop func() error, err error) {
	log := slog.New(slog.DiscardHandler)
	d.waiters = catalog.NewWaiters(s.Pool, "", log)
	projector := catalog.NewProjector(s.Pool, s.Owner, d.waiters)
	d.service = catalog.NewService(projector)
	client, err := broker.Unreachable(ctx)
	if err != nil {
		return nil, err
	}
	c, err := inbox.NewConsumer(s.Pool, client, catalog.Subscription, d.watched(projector.Handler()), log, func() {})
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

// watched is h, whose commits are noted before anybody is told of them.
func (d *desk) watched(h inbox.Handler) inbox.Handler {
	tell := h.Committed
	h.Committed = func(keys ...string) {
		now := time.Now()
		d.mu.Lock()
		for _, key := range keys {
			d.applied[key] = now
		}
		d.mu.Unlock()
		tell(keys...)
	}
	return h
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

// deliver hands an event to the instance in this process.
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

// fill creates the videos, and returns when both instances show them.
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

func position(id uuid.UUID, version int64) consistency.Position {
	return consistency.Position{AggregateType: "video", AggregateID: id.String(), Epoch: eventing.Epoch, Version: version}
}

func videoToken(id uuid.UUID, version int64) string {
	return consistency.Token{Positions: []consistency.Position{position(id, version)}}.String()
}

// token names so many videos from the i-th on, as they are.
func (d *desk) token(i, named int) (string, error) {
	var all consistency.Token
	for n := range named {
		v := d.videos[(i+n)%len(d.videos)]
		all.Positions = append(all.Positions, position(v.id, v.version.Load()))
	}
	merged, err := consistency.Merge(all)
	return merged.String(), err
}

// shown is what the bench looks at in an answer.
type shown struct {
	Version int64          `json:"version"`
	Source  catalog.Source `json:"source"`
}

// get asks the other instance over REST.
func (d *desk) get(ctx context.Context, path string, header http.Header) (a shown, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.other.Addr+path, nil)
	if err != nil {
		return a, err
	}
	req.Header = header
	resp, err := d.client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("GET %s: %s: %s", path, resp.Status, strings.TrimSpace(string(body)))
	}
	err = json.Unmarshal(body, &a)
	return a, err
}
