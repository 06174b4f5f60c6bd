// Package database opens a service's connections to Postgres.
package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connectTimeout is for one address of the database.
const connectTimeout = 5 * time.Second

// Open returns a traced pool, which connects when it is first used, so that a
// service starts while its database is away. Behind a transaction pooler the url
// says default_query_exec_mode=exec. Close the pool after the last use.
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
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return pool, nil
}
