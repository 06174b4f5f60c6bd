package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/backoff"
)

// pooled reports whether LISTEN could only use a connection through a transaction pooler, according
// to the pool's URL.
func (n *Notifier) pooled() bool {
	mode := n.db.Config().ConnConfig.DefaultQueryExecMode
	return n.listenURL == "" && mode != pgx.QueryExecModeCacheStatement
}

// listen keeps a connection that receives notifications, unless no such connection is possible. If
// listen connects as the pool does, and no connection has received anything so far, then a transaction
// pooler is the likely cause, and the pause before the next attempt is longer (pauses.noDelivery).
func (n *Notifier) listen(ctx context.Context, onNotify func(Notification)) {
	if n.pooled() {
		n.log.InfoContext(ctx, "other instances are not heard behind a transaction pooler without a URL to listen at, polling does all")
		return
	}
	hasWorked := false
	for failures := 1; ctx.Err() == nil; failures++ {
		err := n.listenOnce(ctx, onNotify)
		if n.connected.Swap(false) {
			hasWorked = true
			failures = 1 // the first failure since LISTEN worked
			onNotify(Notification{everything: true})
		}
		if ctx.Err() != nil {
			return
		}
		level, pause := slog.LevelWarn, n.pauses.retry.Delay(failures)
		if errors.Is(err, errNoDelivery) && !hasWorked && n.listenURL == "" {
			level, pause = slog.LevelInfo, n.pauses.noDelivery.Delay(failures)
		}
		n.log.Log(ctx, level, "other instances are not heard for now, polling does all", "error", err, "retry_in_ms", pause.Milliseconds())
		backoff.Sleep(ctx, pause, nil)
	}
}

// listenOnce listens on one connection until the connection fails. It sends a probe at first and
// after each silence. If the probe arrives, the connection works. The other processes ignore the
// probe.
func (n *Notifier) listenOnce(ctx context.Context, onNotify func(Notification)) error {
	conn, err := n.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := n.send(ctx, Notification{}); err != nil {
		return err
	}
	for probed := true; ; {
		patience := n.pauses.silence
		if probed {
			patience = n.pauses.answer
		}
		text, err := next(ctx, conn, patience)
		switch {
		case err == nil:
			n.receive(text, onNotify)
			probed = false
		case ctx.Err() != nil || !pgconn.Timeout(err):
			return err
		case probed:
			return errNoDelivery
		default:
			probed = true
			if err := n.send(ctx, Notification{}); err != nil {
				return err
			}
		}
	}
}

func (n *Notifier) receive(notification string, onNotify func(Notification)) {
	sender, text, _ := strings.Cut(notification, " ")
	switch {
	case !n.connected.Swap(true):
		onNotify(Notification{everything: true})
	case sender != n.id && text != "": // otherwise a probe, or this process's own notification
		onNotify(parse(text))
	}
}

// connect returns a session that listens. Such a session is idle most of the time, so connect turns the
// server's time limit for idle sessions off in it.
func (n *Notifier) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := n.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect listener: %w", err)
	}
	var name *string
	const settings = `, set_config('idle_session_timeout', '0', false)`
	switch err = conn.QueryRow(ctx, `SELECT `+channel+settings, n.name).Scan(&name, nil); {
	case err == nil && name == nil:
		err = errNoSchema
	case err == nil:
		_, err = conn.Exec(ctx, `LISTEN `+pgx.Identifier{*name}.Sanitize())
	}
	if err != nil {
		_ = conn.Close(ctx) // it cannot be used
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

func (n *Notifier) dial(ctx context.Context) (*pgx.Conn, error) {
	if n.listenURL != "" {
		cfg, err := pgxpool.ParseConfig(n.listenURL) // the URL may have the settings of a pool
		if err != nil {
			return nil, errors.New("the URL to listen at cannot be parsed") // err may quote the password
		}
		return pgx.ConnectConfig(ctx, cfg.ConnConfig)
	}
	// To connect as the pool does, the pool's hooks must run, too, because they may supply a
	// password.
	cfg := n.db.Config()
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
