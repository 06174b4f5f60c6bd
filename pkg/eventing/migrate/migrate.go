package migrate

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

// ErrBehind is the error of a schema that lacks migrations of the binary.
var ErrBehind = errors.New("the schema is behind the binary")

// ErrRole is the error of sessions that do not look into the schema first, such as an administrator's.
// The statements of a service name no schema, so that they would not find its tables. A pool of a member of the
// service's role needs [Schema.Configure].
var ErrRole = errors.New("the search_path does not lead to the schema first: the pool needs the role of the service, or Schema.Configure")

// ErrServer is the error of a schema with a request role, on a server with a known fault in
// row-level security (CVE-2024-10976). With that fault, a statement that was planned for one role
// could run for another role.
var ErrServer = errors.New("the server's row-level security is not safe: it must be 15.9, 16.5, 17.1 or later")

// ErrRebuild is the error of migrations that would change tables while package rebuild makes a copy
// of them. The migrations would not change the copy. If a migration dropped a column or relaxed a
// constraint, the triggers that write to the copy would fail, and so would the application of
// events.
var ErrRebuild = errors.New("a rebuild of the read model is open")

// versions is goose's table. The migration of the role grants the service the right to read it.
const versions = "goose_db_version"

// Schema is the schema of one service. It has the parts of the library that the service uses, and
// the service's own migrations.
type Schema struct {
	// Name is a lower-case identifier, because goose does not quote it. The table of applied
	// versions is in this schema, too.
	Name string
	// Role is the service's role, which owns nothing. The first migration creates it unless it exists. The
	// migrations give the role each setting that it lacks: its search_path is the schema, and its statements
	// and its waits for locks have time limits. These settings apply in all databases of the server, because
	// a role belongs to all of them. The role of an existing service has to keep its own settings. So it is
	// not Role, but a member of Role: see "A service that has tables already" in the package doc. The first
	// Up needs the right to create roles (CREATEROLE). A later Up needs that right if the role lacks a setting,
	// because a release has another one, or because the schema came from another server. To lift a limit, set it to
	// 0: each Up makes a setting again that was reset.
	Role string
	// RequestRole is the role of requests, if rows belong to tenants. See pkg/eventing/tenant. If
	// it is empty, every statement runs as Role. A schema has a request role from its first
	// migration on, or never, because the library's migrations run once.
	RequestRole string
	// Parts are parts of the library: [Outbox], [Inbox], [Operator].
	Parts []embed.FS
	// Own holds the service's own migrations, in any folder.
	Own embed.FS
	// Earlier is for a schema that is older than the library's own numbers. It maps the library's
	// number of a migration to the migration's number in the schema.
	Earlier map[int64]int64
}

// Up brings the schema in the database at adminURL to its newest version. It connects as the
// schema's owner or an administrator. Each migration is a transaction of its own, unless it says
// otherwise. Up is idempotent, and safe to run from several processes at once, because they take
// turns behind an advisory lock. Up also repairs a schema that came from another server: it extends the file of
// the outbox to the size that it was created with, gives Role the settings that it lacks, makes it a member
// of RequestRole, and moves the sequences of the library's tables that are behind them. It leaves the sequences of
// the service's own tables as they are. Up returns [ErrSettings] in a database of another encoding than UTF8. Up
// returns [ErrReplaced], and applies nothing, if a migration's number was applied as another file. Up returns
// [ErrRebuild] if it would apply a migration while there is a rebuild, and no rebuild begins while Up runs. Only
// ctx bounds Up, because an index on a large table takes minutes.
func (s Schema) Up(ctx context.Context, adminURL string, log *slog.Logger) error {
	db, err := s.Open(adminURL)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := checkSettings(ctx, db); err != nil {
		return err
	}
	p, err := s.provider(ctx, db)
	if err != nil {
		return err
	}
	return s.exclusive(ctx, db, func() error {
		if err := s.refuse(ctx, db, p); err != nil {
			return err
		}
		if err := restoreSequences(ctx, db); err != nil {
			return err
		}
		if err := s.apply(ctx, db, p, log); err != nil {
			return err
		}
		if err := restoreRole(ctx, db); err != nil {
			return err
		}
		return extendOutbox(ctx, db)
	})
}

// apply applies the migrations of p that the schema lacks, and records the names of all. It does so before, because the process may be
// killed meanwhile, and afterwards, because the schema may have had no table of names.
func (s Schema) apply(ctx context.Context, db *sql.DB, p *goose.Provider, log *slog.Logger) error {
	if err := s.compareNames(ctx, db, p); err != nil {
		return err
	}
	if err := recordNames(ctx, db, p); err != nil {
		return err
	}
	applied, err := p.Up(ctx)
	for _, r := range applied {
		log.InfoContext(ctx, "migrated", "schema", s.Name, "file", r.Source.Path, "took_ms", r.Duration.Milliseconds())
	}
	recorded := recordNames(ctx, db, p)
	if err != nil {
		return explain(err)
	}
	return recorded
}

// explain adds advice for an operator to the error of a migration that did not get a lock in time.
func explain(err error) error {
	const lockNotAvailable = "55P03"
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == lockNotAvailable {
		return fmt.Errorf("%w: another transaction holds a table of the migration: end that transaction, and migrate again", err)
	}
	return err
}

// refuse returns ErrRebuild if there is a rebuild, and a migration to apply.
func (s Schema) refuse(ctx context.Context, db *sql.DB, p *goose.Provider) error {
	var open bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass('rebuild_state') IS NOT NULL`).Scan(&open); err != nil || !open {
		return err
	}
	if pending, err := p.HasPending(ctx); err != nil || !pending {
		return err
	}
	return fmt.Errorf("%w: end it with `%s rebuild finish`, and migrate again", ErrRebuild, s.Name)
}

// provider returns goose's provider of the migrations of s. First it creates the schema, because goose
// keeps its table there.
func (s Schema) provider(ctx context.Context, db *sql.DB) (*goose.Provider, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	if err := s.create(ctx, db); err != nil {
		return nil, fmt.Errorf("create schema %s: %w", s.Name, err)
	}
	store, err := database.NewStore(database.DialectPostgres, s.Name+"."+versions)
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(s.lockID()), lock.WithLockTimeout(1, math.MaxInt32)) // ctx bounds the wait
	if err != nil {
		return nil, err
	}
	return goose.NewProvider("", db, files, goose.WithStore(store), goose.WithSessionLocker(locker), goose.WithAllowOutofOrder(true))
}

// lockID is the id of goose's lock. The session that has this lock runs the migrations, and keeps the lock
// while a statement goes on after the process was killed. goose's default is one id for all of a database,
// so a migration of another schema would take turns with this one, and goose gives up after five minutes.
func (s Schema) lockID() int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("lockstep migrations of " + s.Name)) // a hash never fails
	return int64(h.Sum64())
}

// create creates the schema unless it exists. The lock is needed because CREATE SCHEMA IF NOT EXISTS
// fails when two sessions create the schema at once. create sends both statements as one simple query,
// which is one transaction.
func (s Schema) create(ctx context.Context, db *sql.DB) error {
	const locked = `SELECT pg_advisory_xact_lock(hashtext('lockstep create schema')); CREATE SCHEMA IF NOT EXISTS `
	_, err := db.ExecContext(ctx, locked+pgx.Identifier{s.Name}.Sanitize())
	return err
}

// Check returns [ErrBehind] unless the schema has every migration that this binary carries and the role is a
// member of the request role, [ErrRole] if the sessions of pool do not look into the schema, [ErrSettings] if they have unfit settings, and
// [ErrServer] if the schema has a request role and the server has the fault of ErrServer. Further
// migrations are fine, because during a rollout the schema moves first. pool connects as the
// service's role.
func (s Schema) Check(ctx context.Context, pool *pgxpool.Pool) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	var missing []int64
	var server int
	var found, member bool
	var settings string
	table := pgx.Identifier{s.Name, versions}.Sanitize()
	err = pool.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, `+unfit+`, to_regclass($2) IS NOT DISTINCT FROM $3::regclass,
		       array(SELECT unnest($1::bigint[]) EXCEPT SELECT version_id FROM `+table+`
		              WHERE is_applied ORDER BY 1),
		       $4::text = '' OR coalesce(pg_has_role(current_user, to_regrole(quote_ident($4::text)), 'MEMBER'), false)`,
		files.numbers(), versions, table, s.RequestRole).Scan(&server, &settings, &found, &missing, &member)
	if err != nil {
		return fmt.Errorf("read the versions of schema %s: %w", s.Name, err)
	}
	switch {
	case s.RequestRole != "" && unsafe(server):
		return ErrServer
	case settings != "":
		return settingsError(settings)
	case len(missing) > 0:
		return fmt.Errorf("%w: %s lacks the migrations %v", ErrBehind, s.Name, missing)
	case !member:
		return fmt.Errorf("%w: %s is no member of %s", ErrBehind, s.Role, s.RequestRole)
	case !found:
		return fmt.Errorf("%w (schema %s)", ErrRole, s.Name)
	}
	return nil
}

// unsafe reports whether a version, in the form of server_version_num, has the fault of ErrServer.
func unsafe(version int) bool {
	first, known := map[int]int{12: 21, 13: 17, 14: 14, 15: 9, 16: 5, 17: 1}[version/10000]
	return known && version%10000 < first
}

// extendOutbox extends the file of an outbox to at least 64 pages, as migration 203 has done. A
// restored dump and VACUUM FULL write a new file, as small as its rows. Append's statement is
// planned once for each session. A plan that is made while the file is smaller reads the whole
// table for each event, and the session keeps this plan when the table has grown. extendOutbox
// inserts rows and rolls back. The rows extend the file nevertheless, and vacuum does not truncate
// the file.
func extendOutbox(ctx context.Context, db *sql.DB) error {
	const pages = 64
	var small bool
	err := db.QueryRowContext(ctx,
		`SELECT coalesce(pg_relation_size(to_regclass('outbox')) < $1 * current_setting('block_size')::bigint, false)`, pages).Scan(&small)
	if err != nil || !small {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // the rows must not stay
	_, err = tx.ExecContext(ctx, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), '', '', '', n, decode(repeat('00', 1800), 'hex') FROM generate_series(1, 160) AS n`)
	if err != nil {
		return fmt.Errorf("extend the outbox: %w", err)
	}
	return nil
}
