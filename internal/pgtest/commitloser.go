package pgtest

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PoolLosingCommits returns a pool that loses the answer to the first COMMIT after armed is set:
// the server commits, lost is called, and the client's connection breaks. The pool then clears
// armed.
func (*Database) PoolLosingCommits(tb testing.TB, url string, lost func()) (pool *pgxpool.Pool, armed *atomic.Bool) {
	tb.Helper()
	cfg := Settings(tb, url)
	armed = &atomic.Bool{}
	wrap(cfg, func(conn net.Conn) net.Conn { return &commitLoser{Conn: conn, armed: armed, lost: lost} })
	return Open(tb, cfg), armed
}

type commitLoser struct {
	net.Conn

	armed *atomic.Bool
	lost  func()
}

// Read fails in place of the server's answer that a transaction was committed.
func (c *commitLoser) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if bytes.Contains(p[:n], []byte("COMMIT\x00")) && c.armed.CompareAndSwap(true, false) {
		c.lost()
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}
