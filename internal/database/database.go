// Package database opens a service's connections to Postgres.
package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/serve"
	"example.com/lockstep/migrations"
)

// connectTimeout is for one address of the database.
const connectTimeout = 5 * time.Second

// Open returns a traced pool whose times are in UTC. It connects when it is first
// used, so that a service starts while its database is away. Behind a transaction
// pooler the url says default_query_exec_mode=exec. Close the pool after the last use.
func Open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// Not wrapped: it may quote the password.
		return nil, errors.New("DATABASE_URL cannot be parsed")
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	cfg.ConnConfig.Tracer = otelpgx.NewTracer()
	cfg.ConnConfig.OnPgError = closeIfReadOnly(cfg.ConnConfig.OnPgError)
	cfg.AfterConnect = timesInUTC
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return pool, nil
}

// closeIfReadOnly has a connection closed whose server refuses to write. After a
// failover the old primary may live on as a standby and answer every ping: the
// pool would hand out its connections until they are an hour old.
func closeIfReadOnly(usual pgconn.PgErrorHandler) pgconn.PgErrorHandler {
	return func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != "25006" && usual(conn, err)
	}
}

// timesInUTC has timestamptz read in UTC; the default is the machine's time zone.
func timesInUTC(_ context.Context, conn *pgx.Conn) error {
	utc := &pgtype.TimestamptzCodec{ScanLocation: time.UTC}
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: utc})
	return nil
}

// Ready is the readiness check that pool reaches a database in which the service's
// schema has every migration that this binary carries.
func Ready(pool *pgxpool.Pool, service migrations.Service) serve.Check {
	return serve.Check{Name: "database", Run: func(ctx context.Context) error {
		return migrations.Check(ctx, pool, service)
	}}
}
