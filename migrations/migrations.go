// Package migrations holds the schemas of both services. A schema consists of the service's own
// tables, as goose migrations, and of the parts of the library that the service includes. The files
// are embedded, so that tests, `make run`, the `migrate` commands and deployments all run the same
// files.
//
// The owner of a schema runs the migrations of the schema. On a laptop and in tests, the owner is
// an administrator. Where the pair is deployed, the owners are the roles video_owner and
// catalog_owner of deploy/terraform/roles.sql. Each of them owns one schema. The service itself
// connects as its own role (video_service, catalog_service). This role can access only the
// service's schema, and owns nothing. A request runs as video_api or catalog_api, which sees the
// rows of one tenant (see pkg/eventing/tenant).
//
// # Numbers
//
// Package migrate has the rule for the numbers. The numbers from 100 to 999 are the library's. A
// new migration of a service gets the next number from 1000 to 8999. The numbers from 9000 on are
// for forks, so no later version of the origin takes one of them, and 9000 drops the tables of
// what a fork leaves out. Numbers below 100 are the history
// of the pair, in which the library and the services took turns. No number below 100 is added any
// more, and the meaning of these numbers never changes. So a database that has applied them applies
// none of them again. [Service.Schema] maps the library's numbers to the numbers of the history.
//
// Three files of that history served both the library and a service. Their library part now has a
// number of the library as well. In an older database, the migration with the new number finds its
// work done. The three parts are the role's settings of 00053 (now 00102), the outbox's column of
// 00051 (now 00206), and a right on the outbox that 00020 granted. 00010 grants this right, too.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/migrate"
)

var (
	//go:embed video/*.sql
	video embed.FS
	//go:embed catalog/*.sql
	catalog embed.FS
)

// Service names a service, its schema and its folder here.
type Service string

// The services that have a schema.
const (
	Video   Service = "video"
	Catalog Service = "catalog"
)

// Role is the database role with which the service connects.
func (s Service) Role() string { return string(s) + "_service" }

// RequestRole is the database role with which the service's requests run. A request sees the rows
// of one tenant.
func (s Service) RequestRole() string { return string(s) + "_api" }

// Schema returns the service's schema.
func (s Service) Schema() migrate.Schema {
	schema := migrate.Schema{Name: string(s), Role: s.Role(), RequestRole: s.RequestRole()}
	switch s {
	case Video:
		schema.Parts, schema.Own = []embed.FS{migrate.Outbox, migrate.Operator}, video
		schema.Earlier = map[int64]int64{101: 1, 201: 3, 202: 10, 401: 20, 203: 50, 204: 54, 205: 56}
	case Catalog:
		schema.Parts, schema.Own = []embed.FS{migrate.Inbox, migrate.Operator}, catalog
		schema.Earlier = map[int64]int64{101: 1, 301: 2, 401: 20, 302: 21, 303: 30, 304: 52}
	}
	return schema
}

// timeout bounds a whole migration run. It is long, because the creation of an index on a large
// table takes minutes. There is a limit, because a deployment must not hang for ever.
const timeout = 15 * time.Minute

// Up brings the service's schema in the database at adminURL to the newest version (see
// [migrate.Schema.Up]). Last, it creates the optional search index (see searchIndex). Check does
// not require this index. If it is not finished in time, Up logs that and succeeds, because otherwise
// no deployment with so many titles would succeed.
func Up(ctx context.Context, adminURL string, s Service, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := s.Schema().Up(ctx, adminURL, log)
	if err == nil && s == Catalog {
		err = indexTitles(ctx, adminURL, log)
	}
	if err != nil {
		return fmt.Errorf("migrate %s: %w", s, err)
	}
	return nil
}

func indexTitles(ctx context.Context, adminURL string, log *slog.Logger) error {
	db, err := Catalog.Schema().Open(adminURL)
	if err != nil {
		return err
	}
	defer db.Close()
	err = searchIndex(ctx, db, trigrams, log)
	if errors.Is(err, context.DeadlineExceeded) {
		log.WarnContext(ctx, "searches by title have no index yet: its build took too long, and the next run begins anew", "error", err)
		return nil
	}
	return err
}

// Check returns an error unless the service's schema has every migration that this binary carries.
// The schema may also have newer migrations, because during a rollout the schema changes before the
// binaries.
func Check(ctx context.Context, pool *pgxpool.Pool, s Service) error {
	err := s.Schema().Check(ctx, pool)
	if errors.Is(err, migrate.ErrBehind) {
		return fmt.Errorf("%w: run `%s migrate`", err, s)
	}
	return err
}
