package rig

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/migrations"
	"example.com/lockstep/services/catalog"
)

// ReadModel is the catalog side of an event, without a broker and without APIs. It has an unused
// Postgres with the tables of catalog, and the projector that writes to them. Its commits reach the
// disk, as in production.
type ReadModel struct {
	Admin     *pgxpool.Pool
	Pool      *pgxpool.Pool    // as the service
	Owner     *grpc.ClientConn // without a server: there are no gaps to ask about
	Projector *catalog.Projector
	server    *postgres.Server
}

// StartReadModel starts a ReadModel. If no Postgres is installed, the error wraps
// [measure.ErrMissing].
func StartReadModel(ctx context.Context) (_ *ReadModel, err error) {
	m := new(ReadModel)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if m.server, err = startPrivate(ctx, postgres.Options{Sync: true}); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, m.server.URL(), migrations.Catalog, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	url, err := postgres.ServiceURL(ctx, m.server.URL(), "", migrations.Catalog.Role())
	if err != nil {
		return nil, err
	}
	if m.Admin, err = pgxpool.New(ctx, m.server.URL()+"&pool_max_conns=20"); err != nil {
		return nil, err
	}
	if err := reuseLog(ctx, m.Admin); err != nil {
		return nil, err
	}
	if m.Pool, err = pgxpool.New(ctx, url); err != nil {
		return nil, err
	}
	if m.Owner, err = grpc.NewClient(NoListener, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	m.Projector = catalog.NewProjector(m.Pool, m.Owner, catalog.NewWaiters(catalog.MaxWaiting, m.Pool, "", log), log)
	return m, nil
}

// Close stops the Postgres and deletes its data.
func (m *ReadModel) Close() error {
	for _, pool := range []*pgxpool.Pool{m.Admin, m.Pool} {
		if pool != nil {
			pool.Close()
		}
	}
	var errs []error
	if m.Owner != nil {
		errs = append(errs, m.Owner.Close())
	}
	if m.server != nil {
		errs = append(errs, m.server.Close())
	}
	return errors.Join(errs...)
}

// reuseLog gives a new server files of the write-ahead log for reuse. A server that has run for a
// while has such files. A new server makes each file of 16 MB when it needs the file, and a commit
// waits for this for 100 ms.
func reuseLog(ctx context.Context, db *pgxpool.Pool) error {
	const files = 5 // as many as a checkpoint keeps by default
	for range files {
		if _, err := db.Exec(ctx, `SELECT pg_logical_emit_message(true, 'bench', ''), pg_switch_wal()`); err != nil {
			return err
		}
	}
	_, err := db.Exec(ctx, `CHECKPOINT`)
	return err
}
