package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// awaitTime is for a network that comes up after the process: on Cloud Run direct
	// egress to a VPC needs a minute or more, and the sockets of Cloud SQL a moment.
	awaitTime = 90 * time.Second
	// closeTime bounds the closing of the connection to a server that has answered.
	closeTime = 5 * time.Second
)

var awaitPause = backoff.Policy{Base: 250 * time.Millisecond, Cap: 3 * time.Second}

// Await returns when a server of Postgres answers at url, or an error after 90 seconds.
// It takes the place of a service's startup probe in a process that runs once and ends.
// Await calls said with the error of each failed attempt. Every answer of the server
// counts, also a refused password: the caller will find that out.
func Await(ctx context.Context, url string, said func(error)) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return errors.New("DATABASE_URL cannot be parsed") // not wrapped: it may quote the password
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, awaitTime, fmt.Errorf("no database after %s", awaitTime))
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := answers(ctx, config)
		if err == nil {
			return nil
		}
		said(err)
		if !backoff.Sleep(ctx, awaitPause.Delay(attempt), nil) {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// starting are the refusals of a server that will answer soon: it starts, or stops to
// start again, or has no place for another session.
var starting = map[string]bool{"57P01": true, "57P02": true, "57P03": true, "53300": true}

func answers(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && !starting[refused.Code] {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = conn.Close(ctx) // it has answered
	return nil
}
