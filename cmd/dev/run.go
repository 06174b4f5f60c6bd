package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/internal/walk"
	"example.com/lockstep/migrations"
)

const (
	videoPort   = 8080
	catalogPort = 8081
	issuerPort  = 8082
	// fork: leave out
	livePort = 8083
	// fork: go on

	// defaultLevel keeps the output of the walk-through readable. At the level info, every request
	// would be logged.
	defaultLevel = slog.LevelWarn
)

var errInterrupted = errors.New("interrupted before the walk-through had ended")

// pair is the configuration of one run of both services.
type pair struct {
	once, json     bool
	noAuth         bool // no issuer, so every caller may do everything
	origins        serve.Origins
	pubsub         string // auto, local or emulator
	databaseURL    string // the administrator's; empty: start a Postgres
	emulatorHost   string
	project        string
	level          slog.Level
	stdout, stderr io.Writer
}

// parts are the parts of a run, in the order in which they start. A part that has not started yet
// is nil.
type parts struct {
	video, catalog *net.TCPListener
	// fork: leave out
	live *net.TCPListener // nil with --once
	// fork: go on
	issuer               *issuer.Issuer // nil: every caller may do everything
	db, broker           *backing
	postgres             *postgres.Server // nil: the user's own
	videoURL, catalogURL string           // of the services' databases

	videoService, catalogService *process.Instance

	ends []func() error
}

// atEnd registers the function end. close calls the registered functions, the last one first.
func (all *parts) atEnd(end func() error) { all.ends = append(all.ends, end) }

func (all *parts) close() (err error) {
	for _, end := range slices.Backward(all.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// run starts all parts and serves. It always stops the parts, in reverse order. Usually an
// interruption ends the run. With --once, an interruption before the end of the walk-through is an
// error.
func (p pair) run(ctx context.Context) (err error) {
	var all parts
	defer func() { err = errors.Join(err, all.close()) }()
	if err := p.start(ctx, &all); err != nil {
		return p.unlessInterrupted(ctx, err)
	}
	return p.serve(ctx, &all)
}

// start starts all parts except the services, and prepares the services. It opens the ports first,
// so that a taken port is reported within the first second.
func (p pair) start(ctx context.Context, all *parts) (err error) {
	if all.video, err = p.listen(all, "video", videoPort); err != nil {
		return err
	}
	if all.catalog, err = p.listen(all, "catalog", catalogPort); err != nil {
		return err
	}
	if err := p.startIssuer(all); err != nil {
		return err
	}
	// fork: leave out
	if !p.once {
		if all.live, err = p.listen(all, "the live page", livePort); err != nil {
			return err
		}
	}
	// fork: go on
	if all.db, err = p.startPostgres(ctx, all); err != nil {
		return err
	}
	fmt.Fprintf(p.progress(), "database  %s\n", all.db.description)
	if all.broker, err = p.startPubSub(ctx, all); err != nil {
		return err
	}
	fmt.Fprintf(p.progress(), "broker    %s\n", all.broker.description)
	if all.videoURL, err = p.prepare(ctx, all.db.at, migrations.Video); err != nil {
		return err
	}
	if all.catalogURL, err = p.prepare(ctx, all.db.at, migrations.Catalog); err != nil {
		return err
	}
	return p.makeServices(all)
}

// serve runs the services until ctx ends or a part fails. With --once, the end of the walk-through
// also ends serve. When serve returns, the services have drained.
func (p pair) serve(ctx context.Context, all *parts) error {
	wanted, stop := context.WithCancel(ctx)
	defer stop()
	group, serving := errgroup.WithContext(wanted)
	group.Go(func() error { return all.db.watch(serving) })
	group.Go(func() error { return all.broker.watch(serving) })
	group.Go(func() error { return attend(serving, all.videoService) })
	group.Go(func() error {
		if err := walk.AwaitReady(serving, "video", baseURL(all.video)); err != nil {
			return p.unlessInterrupted(ctx, err)
		}
		group.Go(func() error { return attend(serving, all.catalogService) })
		if err := p.show(serving, all); err != nil {
			return p.unlessInterrupted(ctx, err)
		}
		if p.once {
			stop()
			return nil
		}
		// fork: leave out
		group.Go(func() error { return p.serveLive(serving, all) })
		// fork: go on
		<-serving.Done()
		fmt.Fprintln(p.progress(), "\nStopping, once what was accepted is answered. Ctrl-C again: at once.")
		return nil
	})
	return group.Wait()
}

func (p pair) show(ctx context.Context, all *parts) error {
	r := report{
		Postgres: all.db.description, PubSub: all.broker.description,
		videoURL: baseURL(all.video), catalogURL: baseURL(all.catalog), issuerURL: all.issuerURL(), operate: operating(p, all),
	}
	if err := walk.AwaitReady(ctx, "catalog", r.catalogURL); err != nil {
		return err
	}
	db, err := postgres.Connect(ctx, all.db.at)
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	token, err := all.token(walk.User)
	if err != nil {
		return err
	}
	if r.Steps, err = walk.Walk(ctx, r.videoURL, r.catalogURL, token, db); err != nil {
		return err
	}
	if p.json {
		err = json.NewEncoder(p.stdout).Encode(r)
	} else {
		err = r.writeText(p.stdout)
	}
	if err != nil || p.once {
		return err
	}
	// fork: leave out
	r.liveURL = baseURL(all.live)
	// fork: go on
	return r.writeServing(p.progress())
}

func (p pair) unlessInterrupted(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case p.once:
		return errInterrupted
	}
	return nil
}

func baseURL(l net.Listener) string { return "http://" + l.Addr().String() }
