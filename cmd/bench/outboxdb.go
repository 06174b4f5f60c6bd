package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/internal/localpg"
	"example.com/lockstep/migrations"
)

// postgres is the server of all measurements of the outbox: the administrator's
// DATABASE_URL, else a private one. It is started when it is first needed. The
// measurements have databases of their own on it, which are copies of templates.
type postgres struct {
	mu        sync.Mutex
	server    *localpg.Server // nil: DATABASE_URL names it
	admin     *pgxpool.Pool   // nil: not yet started
	adminURL  string
	prefix    string
	templates map[string]*database
	kept      map[string]*database
	made      int
}

// database is one with the video service's tables and those of the source
// document.
type database struct {
	name     string
	admin    string // the administrator's URL
	service  string // the URL of the service's role
	postgres *postgres
	// holder is a transaction whose snapshot keeps vacuum from removing what has
	// become invisible since; nil in most databases.
	holder *pgx.Conn
}

// seedOutboxTable is the source document's, as it stands there but for its place.
const seedOutboxTable = `
CREATE TABLE video.app_outbox (
  id               uuid PRIMARY KEY,
  aggregate_type   text        NOT NULL,
  aggregate_id     text        NOT NULL,
  event_type       text        NOT NULL,
  version          bigint      NOT NULL,
  schema_version   int         NOT NULL DEFAULT 1,
  payload          bytea       NOT NULL,
  occurred_at      timestamptz NOT NULL DEFAULT now(),
  published_at     timestamptz,
  publish_attempts int         NOT NULL DEFAULT 0,
  next_retry_at    timestamptz,
  lock_token       text,
  locked_at        timestamptz
);
CREATE INDEX ON video.app_outbox (published_at) WHERE published_at IS NULL;
CREATE INDEX ON video.app_outbox (next_retry_at) WHERE published_at IS NULL;
CREATE TABLE video.bare_outbox (LIKE video.app_outbox INCLUDING DEFAULTS);
ALTER TABLE video.bare_outbox ADD PRIMARY KEY (id);
CREATE INDEX ON video.bare_outbox (occurred_at) WHERE published_at IS NULL;
GRANT SELECT, INSERT, UPDATE ON video.app_outbox, video.bare_outbox TO video_service`

// start expects the lock.
func (p *postgres) start(ctx context.Context) (err error) {
	if p.admin != nil {
		return nil
	}
	p.adminURL = os.Getenv("DATABASE_URL")
	if p.adminURL == "" {
		if p.server, err = localpg.Start(ctx, localpg.Options{Log: os.Stderr}); err != nil {
			return fmt.Errorf("%w: %w", measure.ErrMissing, err)
		}
		p.adminURL = p.server.URL()
	}
	if p.admin, err = pgxpool.New(ctx, p.adminURL); err != nil {
		return errors.New("DATABASE_URL cannot be parsed") // not wrapped: it may quote the password
	}
	p.prefix = "lockstep_bench_" + uuid.NewString()[:8]
	p.templates, p.kept = map[string]*database{}, map[string]*database{}
	return nil
}

// empty is the template with nothing but tables.
const empty = ""

// template returns the template of that name, which fill makes of an empty
// database the first time.
func (p *postgres) template(ctx context.Context, name string, fill func(context.Context, *pgx.Conn) error) (*database, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.templates[name]; d != nil {
		return d, nil
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	base := p.templates[empty]
	if base == nil {
		var err error
		if base, err = p.migrated(ctx); err != nil {
			return nil, err
		}
		p.templates[empty] = base
	}
	if name == empty {
		return base, nil
	}
	d, err := p.create(ctx, base.name)
	if err != nil {
		return nil, err
	}
	if err := d.asAdmin(ctx, fill); err != nil {
		return nil, errors.Join(fmt.Errorf("fill a database: %w", err), d.drop(ctx))
	}
	p.templates[name] = d
	return d, nil
}

// migrated makes the template of all others.
func (p *postgres) migrated(ctx context.Context) (*database, error) {
	d, err := p.create(ctx, "template0")
	if err != nil {
		return nil, err
	}
	err = migrations.Up(ctx, d.admin, migrations.Video, slog.New(slog.DiscardHandler))
	if err == nil {
		err = d.asAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, seedOutboxTable)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, d.drop(ctx))
	}
	return d, nil
}

// create copies a template.
func (p *postgres) create(ctx context.Context, template string) (*database, error) {
	p.made++
	name := fmt.Sprintf("%s_%d", p.prefix, p.made)
	_, err := p.admin.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()+` TEMPLATE `+pgx.Identifier{template}.Sanitize())
	if err != nil {
		return nil, fmt.Errorf("create a database: %w", err)
	}
	u, err := url.Parse(p.adminURL)
	if err != nil {
		return nil, errors.New("DATABASE_URL is not a URL")
	}
	u.Path = "/" + name
	return &database{name: name, admin: u.String(), postgres: p}, nil
}

// copyOf returns a copy of a template, for one run. Whoever takes it drops it.
func (p *postgres) copyOf(ctx context.Context, template *database) (*database, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, err := p.create(ctx, template.name)
	if err != nil {
		return nil, err
	}
	d.service, err = localpg.ServiceURL(ctx, d.admin, "", migrations.Video.Role())
	if err != nil {
		return nil, errors.Join(err, d.drop(ctx))
	}
	return d, nil
}

// fresh is copyOf the template with nothing but tables.
func (p *postgres) fresh(ctx context.Context) (*database, error) {
	template, err := p.template(ctx, empty, nil)
	if err != nil {
		return nil, err
	}
	return p.copyOf(ctx, template)
}

// pool connects n times as the service, before it returns.
func (d *database) pool(ctx context.Context, n int) (*pgxpool.Pool, error) {
	return d.tracedPool(ctx, n, nil)
}

// tracedPool is pool with a tracer, which may be nil.
func (d *database) tracedPool(ctx context.Context, n int, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(d.service)
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

// asAdmin calls do with a connection of the administrator's.
func (d *database) asAdmin(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, d.admin)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(ctx, conn)
}

// drop removes the database, whoever is still connected.
func (d *database) drop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if d.holder != nil {
		_ = d.holder.Close(ctx) // the database goes anyway
	}
	_, err := d.postgres.admin.Exec(ctx, `DROP DATABASE IF EXISTS `+pgx.Identifier{d.name}.Sanitize()+` WITH (FORCE)`)
	return err
}

// close ends the server, or removes what was made on the one of DATABASE_URL.
func (p *postgres) close(ctx context.Context) error {
	if p.admin == nil {
		return nil
	}
	var errs []error
	for _, databases := range []map[string]*database{p.kept, p.templates} {
		for _, d := range databases {
			errs = append(errs, d.drop(ctx))
		}
	}
	p.admin.Close()
	if p.server != nil {
		errs = append(errs, p.server.Close())
	}
	return errors.Join(errs...)
}
