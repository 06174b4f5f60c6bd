// Package readmodel is the catalog's side of an event, without its broker and its
// APIs: a database of its own with the projector that writes to it, and events of
// videos for it to apply.
package readmodel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/rig/broker"
	"example.com/lockstep/internal/localpg"
	"example.com/lockstep/migrations"
	"example.com/lockstep/services/catalog"
)

// Store is a Postgres that nobody has used yet, with the catalog's tables, and
// what catalog needs to write to it. Its commits reach the disk, as in production.
type Store struct {
	Admin     *pgxpool.Pool
	Pool      *pgxpool.Pool    // as the service
	Owner     *grpc.ClientConn // nobody is there: there are no gaps to ask about
	Projector *catalog.Projector
	server    *localpg.Server
}

// Start starts the Postgres. Where there are no binaries for one, the error
// is [measure.ErrMissing].
func Start(ctx context.Context) (_ *Store, err error) {
	s := new(Store)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.server, err = localpg.Start(ctx, localpg.Options{Sync: true}); err != nil {
		return nil, fmt.Errorf("%w: %w", measure.ErrMissing, err)
	}
	if err := migrations.Up(ctx, s.server.URL(), migrations.Catalog, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	url, err := localpg.ServiceURL(ctx, s.server.URL(), "", migrations.Catalog.Role())
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
	s.Projector = catalog.NewProjector(s.Pool, s.Owner, catalog.NewWaiters(s.Pool, "", slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler))
	return s, nil
}

// Close ends it, and forgets what was in it.
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
