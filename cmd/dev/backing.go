package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/migrations"
)

// connectTime bounds connecting to a running Postgres.
const connectTime = 10 * time.Second

// database is the Postgres of both services.
type database struct {
	adminURL    string
	description string
	server      *postgres.Server // nil: the user's own, which is left running
}

func (p pair) startPostgres(ctx context.Context) (*database, error) {
	if p.databaseURL != "" {
		return existingPostgres(ctx, p.databaseURL)
	}
	server, err := postgres.Start(ctx, postgres.Options{Log: p.progress()})
	if err != nil {
		return nil, err
	}
	return &database{adminURL: server.URL(), description: server.Description(), server: server}, nil
}

func existingPostgres(ctx context.Context, url string) (*database, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer conn.Close(ctx)
	c := conn.Config()
	return &database{adminURL: url, description: fmt.Sprintf("Postgres %s at %s:%d/%s, from DATABASE_URL",
		conn.PgConn().ParameterStatus("server_version"), c.Host, c.Port, c.Database)}, nil
}

// prepare migrates the service's schema and returns the URL of its own role.
func (d *database) prepare(ctx context.Context, s migrations.Service, log *slog.Logger) (string, error) {
	if err := migrations.Up(ctx, d.adminURL, s, log); err != nil {
		return "", err
	}
	return postgres.ServiceURL(ctx, d.adminURL, "", s.Role())
}

// watch returns an error if the private server ends before ctx does. The user's
// own server may restart; the services survive that.
func (d *database) watch(ctx context.Context) error {
	if d.server == nil {
		return nil
	}
	select {
	case <-d.server.Done():
		return errors.New("the private Postgres has ended")
	case <-ctx.Done():
		return nil
	}
}

func (d *database) close() error {
	if d == nil || d.server == nil {
		return nil
	}
	return d.server.Close()
}

// pubsubServer is the broker between the services.
type pubsubServer struct {
	addr        string
	description string
	server      *broker.Server // nil: the user's own, which is left running
}

// startPubSub chooses a broker, creates the topics and subscriptions there, and
// makes the client library use it.
func (p pair) startPubSub(ctx context.Context) (*pubsubServer, error) {
	b, err := p.choosePubSub(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := broker.Provision(ctx, b.addr, p.project); err != nil {
		return b, fmt.Errorf("%s: %w", b.description, err)
	}
	// The library reads an emulator's address only from the environment of the
	// process, each time a client is created.
	return b, os.Setenv(emulatorHost, b.addr)
}

func (p pair) choosePubSub(ctx context.Context) (*pubsubServer, error) {
	if p.usesGiven() {
		return &pubsubServer{addr: p.emulatorHost, description: "the emulator at " + p.emulatorHost + ", from " + emulatorHost}, nil
	}
	kind := broker.Local
	if p.pubsub == "emulator" {
		kind = broker.Official
	}
	server, err := broker.Start(ctx, broker.Options{Kind: kind})
	if err != nil {
		return nil, err
	}
	return &pubsubServer{addr: server.Addr(), description: server.Description() + " at " + server.Addr(), server: server}, nil
}

// usesGiven reports whether the broker is the user's own.
func (p pair) usesGiven() bool { return p.pubsub == "auto" && p.emulatorHost != "" }

// watch returns an error if the server started here ends before ctx does.
func (b *pubsubServer) watch(ctx context.Context) error {
	if b.server == nil {
		return nil
	}
	select {
	case <-b.server.Done():
		return fmt.Errorf("Pub/Sub has ended: %s", b.description)
	case <-ctx.Done():
		return nil
	}
}

func (b *pubsubServer) close() error {
	if b == nil || b.server == nil {
		return nil
	}
	return b.server.Close()
}

// progress is for people: stdout, unless the JSON is printed there.
func (p pair) progress() io.Writer {
	if p.json {
		return p.stderr
	}
	return p.stdout
}
