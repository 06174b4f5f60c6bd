package pgtest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Freezable returns a second pool with the settings of db, and a function that loses the connections that
// the pool has. The server gets nothing more from them and answers nothing, and no call fails, as after
// the loss of a host. Later connections work.
func Freezable(tb testing.TB, db *pgxpool.Pool) (pool *pgxpool.Pool, freeze func()) {
	tb.Helper()
	var made freezables
	cfg := db.Config().Copy()
	wrap(cfg, made.add)
	pool = Open(tb, cfg)
	tb.Cleanup(func() { made.each(func(c *freezable) { _ = c.Close() }) }) // else the pool waits for the end of lost connections
	return pool, func() { made.each(func(c *freezable) { c.lost.Store(true) }) }
}

// freezables are the connections of a pool.
type freezables struct {
	mu  sync.Mutex
	all []*freezable
}

type freezable struct {
	net.Conn

	lost atomic.Bool
}

func (f *freezables) add(conn net.Conn) net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &freezable{Conn: conn}
	f.all = append(f.all, c)
	return c
}

func (f *freezables) each(do func(*freezable)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.all {
		do(c)
	}
}

// Write implements net.Conn.
func (c *freezable) Write(b []byte) (int, error) {
	if c.lost.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
