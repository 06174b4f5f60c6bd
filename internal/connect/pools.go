package connect

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/dbpool"
)

// Pools are the pools of a process that serves (see "Postgres" in the package doc).
type Pools struct {
	Requests, Loops, Probe *pgxpool.Pool
}

// OpenPools opens the pools for url, as OpenPool and ReservePool do. A caller of a request that hangs up costs no
// connection, unless its statement goes on for a second ([dbpool.ForRequests]). Close the pools after the last use.
func OpenPools(ctx context.Context, url string) (p Pools, err error) {
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	p.Requests, err = newPool(ctx, url, func(cfg *pgxpool.Config) {
		sizeForRequests(cfg, url)
		dbpool.ForRequests(cfg)
	})
	if err != nil {
		return p, err
	}
	if p.Loops, err = ReservePool(ctx, url, LoopConns); err != nil {
		return p, err
	}
	p.Probe, err = ReservePool(ctx, url, ProbeConns)
	return p, err
}

// closePools bounds Close. By then the process's requests and loops may have used most of the 10 s between SIGTERM and
// the kill.
const closePools = 200 * time.Millisecond

// Close closes the pools at the end of a process that serves. It does not wait for lost connections. If a
// statement was given up, pgx opens another connection and cancels the statement on the server, and a
// pool's Close waits for that for up to 15 seconds. The rest of this work ends with the process. A command
// for an operator waits with the pool's Close, because the role of its session may have no time limit
// that would end the statement.
func (p Pools) Close() {
	var closing sync.WaitGroup
	for _, pool := range []*pgxpool.Pool{p.Requests, p.Loops, p.Probe} {
		if pool != nil { // OpenPools has failed
			closing.Go(pool.Close)
		}
	}
	closed := make(chan struct{})
	go func() {
		closing.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closePools):
	}
}
