package pgtest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Pooled starts a transaction pooler and returns rawURL through the pooler, with the parameter
// that such a URL needs (default_query_exec_mode=exec). Each transaction gets the session that
// has been idle for longest. The transaction leaves its prepared statements, settings and
// LISTENs in that session.
func (*Database) Pooled(tb testing.TB, rawURL string) string {
	tb.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() { _ = lis.Close() })
	p := &pooler{to: u.Host, idle: map[string][]*backend{}}
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	u.Host = lis.Addr().String()
	query := u.Query()
	query.Set("default_query_exec_mode", "exec")
	u.RawQuery = query.Encode()
	return u.String()
}

// minIdle is how many sessions with the same start-up message must be idle before the pooler uses
// one of them again. So two consecutive transactions of a client get different sessions.
const minIdle = 2

type pooler struct {
	to string

	mu   sync.Mutex
	idle map[string][]*backend // by start-up message
}

// backend is a session of the server. While the session has a client, that client owns the session.
type backend struct {
	net.Conn

	startup []byte

	mu     sync.Mutex
	client *client
}

// client is a connection of a client to the pooler. It is in one transaction at a time.
type client struct {
	net.Conn

	mu sync.Mutex
	in *backend
	// owed is the number of answers that the server has yet to send.
	owed int
	// started is true if a part of a request was sent, and owed does not count its answer yet.
	started bool
}

func (p *pooler) serve(conn net.Conn) {
	defer conn.Close()
	startup, err := readStartup(conn)
	if err != nil {
		return
	}
	c := &client{Conn: conn}
	// The client gets the greeting that a server would send.
	if err := p.dial(startup, conn); err != nil {
		return
	}
	for {
		m, err := readMessage(conn)
		if err != nil || m[0] == 'X' {
			break
		}
		if err := p.send(c, startup, m); err != nil {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in != nil {
		_ = c.in.Close() // in the middle of a transaction
	}
}

// send passes a message on to the session of c. If c has no session, send first takes a session for
// c.
func (p *pooler) send(c *client, startup, m []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.in == nil {
		p.mu.Lock()
		idle := p.idle[string(startup)]
		if len(idle) >= minIdle {
			c.in, p.idle[string(startup)] = idle[0], idle[1:]
		}
		p.mu.Unlock()
		if c.in == nil {
			if err := p.dial(startup, io.Discard); err != nil {
				return err
			}
			continue
		}
		c.in.mu.Lock()
		c.in.client = c
		c.in.mu.Unlock()
	}
	c.started = true
	if m[0] == 'Q' || m[0] == 'S' {
		c.owed, c.started = c.owed+1, false
	}
	_, err := c.in.Write(m)
	return err
}

// dial opens a session, copies the server's greeting, and adds the session to the idle ones.
func (p *pooler) dial(startup []byte, greeting io.Writer) error {
	conn, err := net.Dial("tcp", p.to) //nolint:noctx // it is on this machine
	if err != nil {
		return err
	}
	if _, err := conn.Write(startup); err != nil {
		return err
	}
	s := &backend{Conn: conn, startup: startup}
	for {
		m, err := readMessage(conn)
		if err != nil {
			return err
		}
		if _, err := greeting.Write(m); err != nil {
			return err
		}
		if m[0] == 'E' {
			return errors.New("the server refuses the session")
		}
		if m[0] == 'Z' {
			break
		}
	}
	p.release(s)
	go p.answer(s)
	return nil
}

func (p *pooler) release(s *backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle[string(s.startup)] = append(p.idle[string(s.startup)], s)
}

// answer passes the messages of s on to its client. If s has no client, a message, such as a
// notification, is lost.
func (p *pooler) answer(s *backend) {
	defer s.Close()
	for {
		m, err := readMessage(s.Conn)
		s.mu.Lock()
		c := s.client
		s.mu.Unlock()
		if err != nil {
			if c != nil {
				_ = c.Close()
			}
			return
		}
		if c != nil && p.pass(m, s, c) != nil {
			return
		}
	}
}

// pass passes m on to c, and takes s from c if m is the end of a transaction. Both happen in one
// step. A client that has read the end may begin its next transaction at once, and that transaction
// needs another session.
func (p *pooler) pass(m []byte, s *backend, c *client) error {
	if m[0] != 'Z' {
		_, err := c.Write(m)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Write(m)
	c.owed--
	if err != nil || c.owed > 0 || c.started || m[5] != 'I' {
		return err
	}
	c.in = nil
	s.mu.Lock()
	s.client = nil
	s.mu.Unlock()
	p.release(s)
	return nil
}

// readStartup returns a client's start-up message. It declines encryption, which clients request
// first.
func readStartup(conn net.Conn) ([]byte, error) {
	from := pgproto3.NewBackend(conn, conn)
	for {
		m, err := from.ReceiveStartupMessage()
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *pgproto3.StartupMessage:
			return m.Encode(nil)
		case *pgproto3.CancelRequest:
			return nil, errors.New("a request to cancel is not served")
		}
		if _, err := conn.Write([]byte("N")); err != nil {
			return nil, err
		}
	}
}

func readMessage(r io.Reader) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	m := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
	copy(m, head[:])
	_, err := io.ReadFull(r, m[5:])
	return m, err
}
