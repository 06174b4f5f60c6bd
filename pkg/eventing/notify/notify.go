// Package notify lets the processes on one database notify each other of changes,
// over LISTEN and NOTIFY.
//
// A notification is only a hint: it can get lost with a connection, and behind
// a transaction pooler none arrives at all. If a pool's URL shows that there is
// a pooler (a default_query_exec_mode without prepared statements), the pool is
// not used for LISTEN, which would stay behind in a server session of the
// pooler. So every listener polls too, and a Bell reports whether it receives
// notifications (Hears). A connection to a server that vanished silently looks
// like a connection without notifications, so a Bell that has received nothing
// for 30 s sends itself a probe. Ring works outside the transactions that it
// reports, because NOTIFY takes a lock at commit that the whole cluster shares;
// it costs a writer only a mutex.
package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// tellEvery is the least pause between two notifications.
	tellEvery = 5 * time.Millisecond
	// timeout bounds connecting, sending a notification and the answer to a
	// probe.
	timeout = 5 * time.Second
)

// pauses are the times that tests shorten.
type pauses struct {
	// silence is the time without a message after which a connection must be
	// probed; answer bounds the wait for the probe.
	silence, answer time.Duration
	// retry is the pause after a connection has failed. deaf is the pause after
	// a new connection of the pool's own way has received nothing: the likely
	// cause is a pooler, which is permanent, but it may be a short stall.
	retry, deaf backoff.Policy
}

var usual = pauses{
	silence: 30 * time.Second, answer: timeout,
	retry: backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second},
	deaf:  backoff.Policy{Base: 20 * time.Minute, Cap: 20 * time.Minute},
}

// errDeaf is returned for a connection that accepts LISTEN and receives
// nothing.
var errDeaf = errors.New("notifications do not arrive, as through a transaction pooler")

// Bell is one process's end. Bells of the same name and schema receive each
// other's notifications.
type Bell struct {
	db        *pgxpool.Pool
	listenURL string
	name, id  string
	log       *slog.Logger
	pauses    pauses
	hears     atomic.Bool
	rung      chan struct{}

	mu     sync.Mutex
	untold Bulletin
}

// New returns a bell on the first schema of db's search_path. listenURL
// connects to the same schema past a transaction pooler; empty means that the
// pool's own way of connecting is used.
func New(db *pgxpool.Pool, listenURL, name string, log *slog.Logger) *Bell {
	return &Bell{
		db: db, listenURL: listenURL, name: name, id: rand.Text(),
		log: log.With("component", "bell", "bell", name), pauses: usual, rung: make(chan struct{}, 1),
	}
}

// Hears reports whether this process receives the notifications of the others.
func (b *Bell) Hears() bool { return b.hears.Load() }

// Ring notifies the others of keys, usually within a few milliseconds. It never
// blocks. Without Run no notification is sent.
func (b *Bell) Ring(keys ...string) {
	b.mu.Lock()
	for _, k := range keys {
		b.untold.add(k)
	}
	b.mu.Unlock()
	select {
	case b.rung <- struct{}{}:
	default: // a notification is due already
	}
}

// Run sends and receives notifications until ctx ends, and then returns nil. It
// calls heard, which must not block, with the notifications of the others, and
// with a Bulletin of everything each time that Hears has changed: this process
// does not know the notifications that were sent between two connections.
func (b *Bell) Run(ctx context.Context, heard func(Bulletin)) error {
	var g errgroup.Group
	g.Go(func() error { b.tell(ctx); return nil })
	g.Go(func() error { b.listen(ctx, heard); return nil })
	return g.Wait()
}

func (b *Bell) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.rung:
		}
		b.mu.Lock()
		news := b.untold
		b.untold = Bulletin{}
		b.mu.Unlock()
		if err := b.send(ctx, news); err != nil && ctx.Err() == nil {
			b.log.DebugContext(ctx, "other instances not told", "error", err)
		}
		backoff.Sleep(ctx, tellEvery, nil)
	}
}

// channel is the channel's name; both sides cut it at 63 bytes in the same way.
const channel = `$1 || '.' || current_schema()`

// send does not wait for the disk: if a crash loses a notification, a poll
// finds the same change.
func (b *Bell) send(ctx context.Context, news Bulletin) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := b.db.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', true), pg_notify(`+channel+`, $2)`,
		b.name, b.id+" "+news.String())
	return err
}

// pooled reports whether the pool's URL shows that LISTEN could only use a
// connection through a transaction pooler.
func (b *Bell) pooled() bool {
	mode := b.db.Config().ConnConfig.DefaultQueryExecMode
	return b.listenURL == "" && mode != pgx.QueryExecModeCacheStatement
}

// listen keeps a connection that receives notifications, unless none is
// possible. One failure is likely to be permanent: a new connection of the
// pool's own way that receives nothing. It is retried after a longer pause.
func (b *Bell) listen(ctx context.Context, heard func(Bulletin)) {
	if b.pooled() {
		b.log.InfoContext(ctx, "other instances are not heard behind a transaction pooler without a URL to listen at, polling does all")
		return
	}
	for failures := 1; ctx.Err() == nil; failures++ {
		err := b.listenOnce(ctx, heard)
		heardBefore := b.hears.Swap(false)
		if heardBefore {
			failures = 1 // it worked for a while: a new failure
			heard(Bulletin{everything: true})
		}
		if ctx.Err() != nil {
			return
		}
		level, pause := slog.LevelWarn, b.pauses.retry.Delay(failures)
		if errors.Is(err, errDeaf) && !heardBefore && b.listenURL == "" {
			level, pause = slog.LevelInfo, b.pauses.deaf.Delay(failures)
		}
		b.log.Log(ctx, level, "other instances are not heard for now, polling does all", "error", err, "retry_in_ms", pause.Milliseconds())
		backoff.Sleep(ctx, pause, nil)
	}
}

// listenOnce listens on one connection until it fails. A probe shows that the
// connection works, at first and after each silence; the other processes ignore
// it.
func (b *Bell) listenOnce(ctx context.Context, heard func(Bulletin)) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := b.send(ctx, Bulletin{}); err != nil {
		return err
	}
	for probed := true; ; {
		patience := b.pauses.silence
		if probed {
			patience = b.pauses.answer
		}
		text, err := next(ctx, conn, patience)
		switch {
		case err == nil:
			b.hear(text, heard)
			probed = false
		case ctx.Err() != nil || !pgconn.Timeout(err):
			return err
		case probed:
			return errDeaf
		default:
			probed = true
			if err := b.send(ctx, Bulletin{}); err != nil {
				return err
			}
		}
	}
}

func (b *Bell) hear(notification string, heard func(Bulletin)) {
	sender, text, _ := strings.Cut(notification, " ")
	switch {
	case !b.hears.Swap(true):
		heard(Bulletin{everything: true})
	case sender != b.id && text != "": // else a probe
		heard(parse(text))
	}
}

func (b *Bell) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := b.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect listener: %w", err)
	}
	var name string
	if err = conn.QueryRow(ctx, `SELECT `+channel, b.name).Scan(&name); err == nil {
		_, err = conn.Exec(ctx, `LISTEN `+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		_ = conn.Close(ctx) // it cannot be used
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

func (b *Bell) dial(ctx context.Context) (*pgx.Conn, error) {
	if b.listenURL != "" {
		cfg, err := pgx.ParseConfig(b.listenURL)
		if err != nil {
			return nil, errors.New("the URL to listen at cannot be parsed") // not wrapped: it may quote the password
		}
		return pgx.ConnectConfig(ctx, cfg)
	}
	// The pool's own way is more than an address: its hooks may supply a
	// password.
	cfg := b.db.Config()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err == nil && cfg.AfterConnect != nil {
		if err = cfg.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(ctx) // it cannot be used
		}
	}
	return conn, err
}

func next(ctx context.Context, conn *pgx.Conn, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	return n.Payload, nil
}
