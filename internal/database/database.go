// Package database opens a service's connections to Postgres.
//
// A process has a pool for each kind of user, so that none can take the connections of
// another:
//
//	Open     requests                            4, or the URL's pool_max_conns
//	Reserve  the loops: relay, consumers, sweep  4
//	Reserve  readiness                           1
//
// LISTEN takes one more connection, outside of the pools: ten for each process.
package database

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectTimeout is for one address of the database.
	connectTimeout = 5 * time.Second
	// RequestConns are for requests if the URL does not say pool_max_conns. The number
	// does not depend on the machine, because an operator adds up the connections of
	// instances.
	RequestConns = 4
	// LoopConns are for the loops of one process.
	LoopConns = 4
	// ProbeConns are for its readiness.
	ProbeConns = 1
)

// Open returns a traced pool for requests; its times are in UTC. It connects when it is
// first used, so that a service starts while its database is down. Behind a transaction
// pooler the url says default_query_exec_mode=exec. Close the pool after the last use.
func Open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := parse(url)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		cfg.MaxConns = RequestConns
	}
	return open(ctx, cfg)
}

// Reserve is Open with exactly conns connections, regardless of the url: for a part of
// the process that goes on while requests wait.
func Reserve(ctx context.Context, url string, conns int32) (*pgxpool.Pool, error) {
	cfg, err := parse(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = conns, 0, 0
	return open(ctx, cfg)
}

func parse(url string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// Not wrapped: it may quote the password.
		return nil, errors.New("DATABASE_URL cannot be parsed")
	}
	return cfg, nil
}

func open(ctx context.Context, cfg *pgxpool.Config) (*pgxpool.Pool, error) {
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

// closeIfReadOnly has a connection closed when its server refuses to write. After a
// failover the old primary may go on as a standby and answer every ping: the pool would
// hand out its connections until they are an hour old.
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
