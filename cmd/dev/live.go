package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/cmd/dev/scenario"
	"example.com/lockstep/internal/live"
)

const (
	// headerTime bounds the reading of a request's headers. There is no limit for an answer,
	// because a stream of frames has no end.
	headerTime = 5 * time.Second
	// closeTime bounds the time that the page's last answers have to end.
	closeTime = 2 * time.Second
)

// serveLive serves the live page. It returns after ctx has ended and the last scenario has repaired
// what it broke.
func (p pair) serveLive(ctx context.Context, all *parts) error {
	running, err := scenario.Open(ctx, scenario.Config{
		Video: all.videoService, Catalog: all.catalogService,
		VideoURL: baseURL(all.video), CatalogURL: baseURL(all.catalog),
		AdminURL: all.db.at, OwnerURL: all.videoURL, Postgres: all.postgres,
		Broker: all.broker.at, Project: p.project, Issuer: all.issuer,
	})
	if err != nil {
		return err
	}
	defer running.Close()
	page, err := live.New(live.Options{Title: "Lockstep, live", Buttons: running.Buttons(), Promises: scenario.Promises()})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: headerTime}
	server.RegisterOnShutdown(page.Close)
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error { return scenario.NewRunner(running, page).Run(serving) })
	group.Go(func() error {
		if err := server.Serve(all.live); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-serving.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		return server.Shutdown(ctx)
	})
	return group.Wait()
}
