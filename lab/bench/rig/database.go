package rig

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Database is a database with the tables of the video service and the content of its template.
type Database struct {
	Admin   string // the administrator's URL
	Service string // the URL of the video service's role
	name    string
	server  *Postgres
	// snapshot is the connection that Hold opens. It is nil in most databases.
	snapshot *pgx.Conn
}

// ServiceConns is the default size of a service's pool on a small machine.
const ServiceConns = 4

// Pool returns a pool of the service's role. Its n connections are already open.
func (d *Database) Pool(ctx context.Context, n int) (*pgxpool.Pool, error) {
	return d.TracedPool(ctx, n, nil)
}

// AdminPool is like Pool, but as the administrator.
func (d *Database) AdminPool(ctx context.Context, n int) (*pgxpool.Pool, error) {
	return poolOf(ctx, d.Admin, n, nil)
}

// TracedPool is like Pool, but with a tracer. The tracer may be nil.
func (d *Database) TracedPool(ctx context.Context, n int, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	return poolOf(ctx, d.Service, n, tracer)
}

func poolOf(ctx context.Context, url string, n int, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.ConnConfig.Tracer = int32(n), tracer
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	conns := make([]*pgxpool.Conn, 0, n)
	for range n {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			break
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
	if len(conns) < n {
		pool.Close()
		return nil, fmt.Errorf("connected %d times of %d", len(conns), n)
	}
	return pool, nil
}

// AsAdmin calls do with a connection of the administrator.
func (d *Database) AsAdmin(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, d.Admin)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(ctx, conn)
}

// Hold opens a transaction with a snapshot of the outbox. The transaction stays open until the
// database is dropped. So vacuum cannot remove row versions that become invisible from now on.
func (d *Database) Hold(ctx context.Context) (err error) {
	if d.snapshot, err = pgx.Connect(ctx, d.Admin); err != nil {
		return err
	}
	_, err = d.snapshot.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM video.outbox`)
	return err
}

// Sessions returns the process ids of the database's sessions. If the server is not a private one
// on this machine, it returns none.
func (d *Database) Sessions(ctx context.Context) ([]int, error) {
	if d.server.private == nil {
		return nil, nil
	}
	rows, err := d.server.admin.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE datname = $1`, d.name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// Drop removes the database, even if connections to it remain.
func (d *Database) Drop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if d.snapshot != nil {
		_ = d.snapshot.Close(ctx) // the database is dropped anyway
	}
	delete(d.server.existing, d.name)
	_, err := d.server.admin.Exec(ctx, `DROP DATABASE IF EXISTS `+pgx.Identifier{d.name}.Sanitize()+` WITH (FORCE)`)
	return err
}
