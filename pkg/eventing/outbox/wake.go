package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing"
)

const (
	// notifyEvery is how often, at most, a relay tells the others of its
	// process's commits.
	notifyEvery = time.Second
	// wakeTimeout bounds each statement about wake-ups.
	wakeTimeout = 5 * time.Second
	// listenCheck is how often a silent listener makes sure that its connection
	// is alive.
	listenCheck = time.Minute
)

// channel is where the relays of one outbox tell each other of new events. Names
// are cut at 63 bytes on both sides alike.
const channel = `'outbox.' || current_schema()`

// notify tells the relays of other processes that there are new events: at once,
// and then no more often than once a second. It is outside of the transactions
// that it tells of, since NOTIFY takes a lock at commit that the whole cluster
// shares. Nothing depends on it: relays poll.
func (r *Relay) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.tell:
		}
		if err := r.sendNotify(ctx, r.token); err != nil {
			r.log.DebugContext(ctx, "other relays not notified", "error", err)
		}
		eventing.Sleep(ctx, notifyEvery, nil)
	}
}

func (r *Relay) sendNotify(ctx context.Context, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	_, err := r.db.Exec(ctx, `SELECT pg_notify(`+channel+`, $1)`, payload)
	return err
}

// errDeaf is a connection on which LISTEN is accepted and nothing arrives.
var errDeaf = errors.New("notifications do not arrive, as through a transaction pooler")

// listen wakes the relay when another one notifies, until ctx ends or the
// pool's own way of connecting proves to be deaf.
func (r *Relay) listen(ctx context.Context) {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := r.listenOnce(ctx, func() { attempt = 0 })
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errDeaf) && r.options.ListenURL == "":
			r.log.InfoContext(ctx, "relay only polls for other instances' events", "reason", err)
			return
		}
		r.log.WarnContext(ctx, "relay only polls for other instances' events until it listens again", "error", err)
		eventing.Sleep(ctx, outage.Delay(attempt), nil)
	}
}

// listenOnce listens on one connection until that fails. heard is called once it
// has proved to work.
func (r *Relay) listenOnce(ctx context.Context, heard func()) error {
	conn, err := r.connectListener(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	probe := r.token + " probes"
	if err := r.sendNotify(ctx, probe); err != nil {
		return err
	}
	// Whatever was committed before the LISTEN was not told of.
	signal(r.woken)
	works := false
	for {
		patience := listenCheck
		if !works {
			patience = wakeTimeout
		}
		payload, err := nextNotification(ctx, conn, patience)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case pgconn.Timeout(err) && !works:
			return errDeaf
		case pgconn.Timeout(err):
			err = ping(ctx, conn)
		}
		if err != nil {
			return err
		}
		switch payload {
		case probe:
			works = true
			heard()
		case "", r.token:
		default:
			signal(r.woken)
		}
	}
}

// connectListener opens a connection and listens on it.
func (r *Relay) connectListener(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	cfg := r.db.Config().ConnConfig.Copy()
	if r.options.ListenURL != "" {
		var err error
		if cfg, err = pgx.ParseConfig(r.options.ListenURL); err != nil {
			return nil, errors.New("the listener's URL cannot be parsed") // not wrapped: it may quote the password
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect listener: %w", err)
	}
	var name string
	if err = conn.QueryRow(ctx, `SELECT `+channel).Scan(&name); err == nil {
		_, err = conn.Exec(ctx, `LISTEN `+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		_ = conn.Close(ctx) // it is of no use
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

func nextNotification(ctx context.Context, conn *pgx.Conn, patience time.Duration) (payload string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	return n.Payload, nil
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	return conn.Ping(ctx)
}
