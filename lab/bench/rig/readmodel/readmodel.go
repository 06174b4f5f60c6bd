// Package readmodel is the catalog's side of an event, without its broker and
// its APIs: its own database with the projector that writes to it, and events
// of videos for it to apply.
package readmodel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig/broker"
	"example.com/lockstep/migrations"
	"example.com/lockstep/services/catalog"
)

// Store is an unused Postgres with the catalog's tables, and the parts that
// catalog needs to write to it. Its commits reach the disk, as in production.
type Store struct {
	Admin     *pgxpool.Pool
	Pool      *pgxpool.Pool    // as the service
	Owner     *grpc.ClientConn // without a server: there are no gaps to ask about
	Projector *catalog.Projector
	server    *postgres.Server
}

// Start starts the Postgres. If it does not start, for example without
// binaries, the error wraps [measure.ErrMissing].
func Start(ctx context.Context) (_ *Store, err error) {
	s := new(Store)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.server, err = postgres.Start(ctx, postgres.Options{Sync: true}); err != nil {
		return nil, fmt.Errorf("%w: %w", measure.ErrMissing, err)
	}
	if err := migrations.Up(ctx, s.server.URL(), migrations.Catalog, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	url, err := postgres.ServiceURL(ctx, s.server.URL(), "", migrations.Catalog.Role())
	if err != nil {
		return nil, err
	}
	if s.Admin, err = pgxpool.New(ctx, s.server.URL()+"&pool_max_conns=20"); err != nil {
		return nil, err
	}
	if s.Pool, err = pgxpool.New(ctx, url); err != nil {
		return nil, err
	}
	if s.Owner, err = grpc.NewClient(broker.Nobody, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	s.Projector = catalog.NewProjector(s.Pool, s.Owner, catalog.NewWaiters(catalog.MaxWaiting, s.Pool, "", log), log)
	return s, nil
}

// Close stops the Postgres and deletes its data.
func (s *Store) Close() error {
	for _, pool := range []*pgxpool.Pool{s.Admin, s.Pool} {
		if pool != nil {
			pool.Close()
		}
	}
	var errs []error
	if s.Owner != nil {
		errs = append(errs, s.Owner.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	return errors.Join(errs...)
}
