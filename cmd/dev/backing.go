package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/migrations"
)

// connectTime bounds the connection attempt to a Postgres that runs already.
const connectTime = 10 * time.Second

// backing is a server that both services need.
type backing struct {
	at          string // the administrator's URL of Postgres, or host:port of Pub/Sub
	description string
	done        <-chan struct{} // closed when the server has ended; nil for the user's own, which is left running
	ended       error           // the error that reports an unexpected end
}

func (p pair) startPostgres(ctx context.Context, all *parts) (*backing, error) {
	if p.databaseURL != "" {
		return existingPostgres(ctx, p.databaseURL)
	}
	postgres.Forget()
	s, err := postgres.Start(ctx, postgres.Options{Log: p.progress()})
	if err != nil {
		return nil, err
	}
	all.atEnd(s.Close)
	all.postgres = s
	return &backing{at: s.URL(), description: s.Description(), done: s.Done(), ended: errors.New("the private Postgres has ended")}, nil
}

func existingPostgres(ctx context.Context, url string) (*backing, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer conn.Close(ctx)
	c := conn.Config()
	return &backing{at: url, description: fmt.Sprintf("Postgres %s at %s:%d/%s, from DATABASE_URL",
		conn.PgConn().ParameterStatus("server_version"), c.Host, c.Port, c.Database)}, nil
}

func (p pair) prepare(ctx context.Context, adminURL string, s migrations.Service) (string, error) {
	if err := migrations.Up(ctx, adminURL, s, telemetry.Logger(p.stderr, p.level, string(s), "")); err != nil {
		return "", err
	}
	return postgres.ServiceURL(ctx, adminURL, "", s.Role())
}

// startPubSub chooses a broker and starts it if necessary. It creates the topics and subscriptions
// in the broker. Then it sets the environment variable that makes the client library use the
// broker.
func (p pair) startPubSub(ctx context.Context, all *parts) (*backing, error) {
	b, err := p.choosePubSub(ctx, all)
	if err != nil {
		return nil, err
	}
	if _, err := broker.Provision(ctx, b.at, p.project); err != nil {
		return b, fmt.Errorf("%s: %w", b.description, err)
	}
	// The client library takes the address of an emulator only from the environment of the process.
	// It reads the environment each time a client is created.
	return b, os.Setenv(emulatorHost, b.at)
}

func (p pair) choosePubSub(ctx context.Context, all *parts) (*backing, error) {
	if p.pubsub == "auto" && p.emulatorHost != "" {
		return &backing{at: p.emulatorHost, description: "the emulator at " + p.emulatorHost + ", from " + emulatorHost}, nil
	}
	kind := broker.Local
	if p.pubsub == "emulator" {
		kind = broker.Official
	}
	s, err := broker.Start(ctx, broker.Options{Kind: kind})
	if err != nil {
		return nil, err
	}
	all.atEnd(s.Close)
	description := s.Description() + " at " + s.Addr()
	return &backing{at: s.Addr(), description: description, done: s.Done(), ended: fmt.Errorf("Pub/Sub has ended: %s", description)}, nil
}

// watch returns an error if this program started the server and the server ends before ctx does. A
// server of the user is not watched, because it may restart and the services survive a restart.
func (b *backing) watch(ctx context.Context) error {
	select {
	case <-b.done:
		return b.ended
	case <-ctx.Done():
		return nil
	}
}

// progress returns the writer for messages to people. This is stdout, or stderr if stdout has the
// JSON.
func (p pair) progress() io.Writer {
	if p.json {
		return p.stderr
	}
	return p.stdout
}
