// Package scenario attacks the running pair and checks that its promises hold. It runs one scenario
// at a time. Each scenario is a button of the live page.
//
// A scenario breaks one thing, and writes while that thing is broken. Then it repairs the thing,
// and waits until both services agree. A promise counts as kept only if the databases show that it
// was kept: each change has its event, each event is applied, the events of each video are in
// order, and nothing is applied twice. A scenario never succeeds only because some time has passed.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/walk"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// callTime bounds one call to a service. A read may wait for 10 s.
	callTime = 20 * time.Second
	// queryTime bounds one query.
	queryTime = 5 * time.Second
	// repairTime bounds the repairs after a scenario.
	repairTime = time.Minute
	// glance is the pause between two checks of a condition.
	glance = 50 * time.Millisecond
	// conns is the number of calls that are under way at once, at most.
	conns = 16
)

// Config names the running parts of the pair.
type Config struct {
	Video, Catalog       *process.Instance
	VideoURL, CatalogURL string // base URLs of the services
	AdminURL, OwnerURL   string // URLs of the database, for the administrator and for video's role
	Postgres             *postgres.Server
	Broker, Project      string         // host:port, and Google Cloud project
	Issuer               *issuer.Issuer // nil: every caller may do everything
}

// Pair is the running pair. Close it after the last use.
type Pair struct {
	Config
	db     *pgxpool.Pool
	client walk.Client
	faults bool      // the broker injects faults on demand
	once   bool      // see withoutRetries
	met    *shutdown // counts the requests to a part that is asked to end, or nil
}

// Open returns the pair. It asks the broker whether the broker can inject faults.
func Open(ctx context.Context, c Config) (_ *Pair, err error) {
	p := &Pair{Config: c, client: walk.Client{
		Client: http.Client{Timeout: callTime, Transport: &http.Transport{MaxIdleConnsPerHost: conns}},
	}}
	if c.Issuer != nil {
		if p.client.Token, err = c.Issuer.Mint(eventing.DefaultTenant, walk.User); err != nil {
			return nil, err
		}
	}
	if p.db, err = pgxpool.New(ctx, c.AdminURL); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	// Reading the faults changes nothing in the broker. So it is safe if another program has
	// started the broker.
	p.faults = p.control(ctx, http.MethodGet, "faults", nil, nil) == nil
	return p, nil
}

// withoutRetries returns a copy of p that sends each request once, on a new connection. So a
// request cannot fail because the server has closed an idle connection. met counts the requests.
func (p *Pair) withoutRetries(met *shutdown) *Pair {
	strict := *p
	strict.once, strict.met = true, met
	strict.client.Transport = &http.Transport{DisableKeepAlives: true}
	return &strict
}

// Close ends the connections.
func (p *Pair) Close() {
	p.db.Close()
	p.client.CloseIdleConnections()
}

// until waits until condition returns true. If condition returns an error, until calls it again,
// because a part may be away. If ctx ends first, the error of until includes the last error of
// condition. wanted describes the condition in that error.
func until(ctx context.Context, wanted string, condition func(context.Context) (bool, error)) error {
	for {
		holds, err := condition(ctx)
		if holds && err == nil {
			return nil
		}
		if !backoff.Sleep(ctx, glance, nil) {
			return errors.Join(fmt.Errorf("not seen in time: %s", wanted), err)
		}
	}
}

// settled waits until catalog has the same state of the videos as their owner, and all events of
// the videos have left the outbox.
func (p *Pair) settled(ctx context.Context, ids ...uuid.UUID) error {
	return until(ctx, "both services agree", func(ctx context.Context) (bool, error) {
		n, err := p.unsettled(ctx, ids)
		return n == 0, err
	})
}

func (p *Pair) ready(ctx context.Context) error {
	if err := walk.AwaitReady(ctx, "video", p.VideoURL); err != nil {
		return err
	}
	return walk.AwaitReady(ctx, "catalog", p.CatalogURL)
}
