package rig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/migrations"
)

// Postgres is the database server of most measurements. If TEST_DATABASE_URL is set, it is the server at
// this URL of an administrator. Otherwise it is a private server, which is started when it is first
// needed. Each run has its own database on the server, which is a copy of a template.
//
// Only one caller at a time may use it. Its zero value is ready.
type Postgres struct {
	private   *postgres.Server // nil: TEST_DATABASE_URL is used
	admin     *pgxpool.Pool    // nil: not started yet
	adminURL  string
	prefix    string
	made      int
	templates map[string]*Database
	existing  map[string]*Database // the databases that are not dropped yet, by name
}

func (p *Postgres) start(ctx context.Context) (err error) {
	if p.admin != nil {
		return nil
	}
	p.adminURL = os.Getenv("TEST_DATABASE_URL")
	if p.adminURL == "" {
		if p.private, err = startPrivate(ctx, postgres.Options{Log: os.Stderr}); err != nil {
			return err
		}
		p.adminURL = p.private.URL()
	}
	if p.admin, err = pgxpool.New(ctx, p.adminURL); err != nil {
		return errors.New("TEST_DATABASE_URL cannot be parsed") // not wrapped: it may quote the password
	}
	p.prefix = "lockstep_bench_" + uuid.NewString()[:8]
	p.templates, p.existing = map[string]*Database{}, map[string]*Database{}
	return nil
}

// startPrivate starts a private Postgres. If no Postgres is installed, measurements are left out.
// If an installed Postgres fails, the measurements fail.
func startPrivate(ctx context.Context, options postgres.Options) (*postgres.Server, error) {
	server, err := postgres.Start(ctx, options)
	return server, leftOutIfMissing(err)
}

func leftOutIfMissing(err error) error {
	if errors.Is(err, postgres.ErrNotInstalled) {
		return fmt.Errorf("%w: %w", measure.ErrMissing, err)
	}
	return err
}

// empty is the name of the template that has only the tables of the video service.
const empty = ""

// Fresh returns a database that has only the tables of the video service. The caller must drop it.
func (p *Postgres) Fresh(ctx context.Context) (*Database, error) { return p.CopyOf(ctx, empty, nil) }

// ForBoth returns a database that has only the tables of both services. The caller must drop it.
func (p *Postgres) ForBoth(ctx context.Context) (*Database, error) {
	return p.CopyOf(ctx, "both services", func(ctx context.Context, conn *pgx.Conn) error {
		return migrations.Up(ctx, conn.Config().ConnString(), migrations.Catalog, slog.New(slog.DiscardHandler))
	})
}

// CopyOf returns a copy of the template with this name. At the first call, fill makes the template
// from a fresh database. The caller must drop the copy.
func (p *Postgres) CopyOf(ctx context.Context, name string, fill func(context.Context, *pgx.Conn) error) (*Database, error) {
	template, err := p.template(ctx, name, fill)
	if err != nil {
		return nil, err
	}
	d, err := p.create(ctx, template.name)
	if err != nil {
		return nil, err
	}
	d.Service, err = postgres.ServiceURL(ctx, d.Admin, "", migrations.Video.Role())
	if err != nil {
		return nil, errors.Join(err, d.Drop(ctx))
	}
	return d, nil
}

func (p *Postgres) template(ctx context.Context, name string, fill func(context.Context, *pgx.Conn) error) (*Database, error) {
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	if d := p.templates[name]; d != nil {
		return d, nil
	}
	base := "template0"
	if name == empty {
		fill = migrate
	} else {
		d, err := p.template(ctx, empty, nil)
		if err != nil {
			return nil, err
		}
		base = d.name
	}
	d, err := p.create(ctx, base)
	if err != nil {
		return nil, err
	}
	if err := d.AsAdmin(ctx, fill); err != nil {
		return nil, errors.Join(fmt.Errorf("fill a database: %w", err), d.Drop(ctx))
	}
	p.templates[name] = d
	return d, nil
}

func migrate(ctx context.Context, conn *pgx.Conn) error {
	return migrations.Up(ctx, conn.Config().ConnString(), migrations.Video, slog.New(slog.DiscardHandler))
}

// create creates a database as a copy of the database from.
func (p *Postgres) create(ctx context.Context, from string) (*Database, error) {
	p.made++
	name := fmt.Sprintf("%s_%d", p.prefix, p.made)
	_, err := p.admin.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()+` TEMPLATE `+pgx.Identifier{from}.Sanitize())
	if err != nil {
		return nil, fmt.Errorf("create a database: %w", err)
	}
	u, err := url.Parse(p.adminURL)
	if err != nil {
		return nil, errors.New("TEST_DATABASE_URL is not a URL")
	}
	u.Path = "/" + name
	d := &Database{name: name, Admin: u.String(), server: p}
	p.existing[name] = d
	return d, nil
}

// Close drops the remaining databases, and stops a private server.
func (p *Postgres) Close(ctx context.Context) error {
	if p.admin == nil {
		return nil
	}
	var errs []error
	for _, d := range p.existing {
		errs = append(errs, d.Drop(ctx))
	}
	p.admin.Close()
	if p.private != nil {
		errs = append(errs, p.private.Close())
	}
	return errors.Join(errs...)
}
