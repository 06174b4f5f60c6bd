package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/postgres"
)

// cluster is the server for the databases of a test binary. It starts at the
// first clone.
type cluster struct {
	// migrate makes the template at the administrator's URL.
	migrate func(ctx context.Context, adminURL string) error

	// mu also serialises the copies, because Postgres does not copy a template while another
	// session is connected to it.
	mu       sync.Mutex
	started  bool
	startErr error
	made     int

	server   *postgres.Server // nil: TEST_DATABASE_URL is used
	admin    *pgxpool.Pool
	adminURL *url.URL
	roleURL  map[string]*url.URL
	template string
}

// clone copies the template. If the server cannot be started, later calls do not try again,
// because each test would wait for the same failure.
func (c *cluster) clone(ctx context.Context) (*Database, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		c.started, c.startErr = true, c.start()
	}
	if c.startErr != nil {
		return nil, c.startErr
	}
	c.made++
	name := fmt.Sprintf("%s_%d", c.template, c.made)
	if err := c.create(ctx, name, c.template); err != nil {
		return nil, err
	}
	return &Database{Admin: withDatabase(c.adminURL, name), name: name}, nil
}

// as returns the URL with which role connects to the server. The URL is the same for all tests.
func (c *cluster) as(ctx context.Context, role string) (*url.URL, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, found := c.roleURL[role]; found {
		return known, nil
	}
	text, err := postgres.ServiceURL(ctx, c.adminURL.String(), "", role)
	if err != nil {
		return nil, err
	}
	c.roleURL[role], err = url.Parse(text)
	return c.roleURL[role], err
}

// start connects to the server and makes the template. It does not use a test's context, because
// the server outlives the test that needs it first.
func (c *cluster) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // a first start may download Postgres
	defer cancel()
	if err := c.connect(ctx); err != nil {
		return err
	}
	// Runs that share a cluster need different names.
	c.template = "lockstep_test_" + uuid.NewString()[:8]
	if err := c.create(ctx, c.template, "template0"); err != nil {
		return err
	}
	c.roleURL = map[string]*url.URL{}
	return c.migrate(ctx, withDatabase(c.adminURL, c.template))
}

func (c *cluster) connect(ctx context.Context) (err error) {
	admin := os.Getenv("TEST_DATABASE_URL")
	if admin == "" {
		if c.server, err = postgres.Start(ctx, postgres.Options{Log: os.Stderr, InMemory: true}); err != nil {
			return fmt.Errorf("%w (or set TEST_DATABASE_URL to an administrator's URL)", err)
		}
		admin = c.server.URL()
	}
	if c.adminURL, err = url.Parse(admin); err != nil {
		return fmt.Errorf("TEST_DATABASE_URL: not a URL")
	}
	c.admin, err = pgxpool.New(ctx, admin)
	return err
}

// create makes a database from copies of the template's files. From Postgres 15 on, the default is
// to write each page to the log instead, which avoids a checkpoint. The default takes twice the
// time here, because no checkpoint here waits for the disk.
func (c *cluster) create(ctx context.Context, name, template string) error {
	return c.exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(template)+" STRATEGY file_copy")
}

func (c *cluster) drop(ctx context.Context, name string) error {
	return c.exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
}

func (c *cluster) exec(ctx context.Context, sql string) error {
	if _, err := c.admin.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// close prints a failure and does not fail a test, because all tests have ended.
func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	if c.admin != nil {
		if err := c.drop(ctx, c.template); err != nil && c.startErr == nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
		}
		c.admin.Close()
	}
	if c.server != nil {
		if err := c.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
		}
	}
}

func withDatabase(u *url.URL, name string) string {
	other := *u
	other.Path = "/" + name
	return other.String()
}
