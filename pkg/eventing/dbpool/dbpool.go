// Package dbpool configures a pgx pool for the library. The other packages of the library take a pool from
// their caller, and rely on the behaviour that [Configure] gives it.
package dbpool

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	uuids "github.com/vgarvardt/pgx-google-uuid/v5"
)

const (
	// connectTimeout bounds the attempt to connect to one address of the database, unless the URL sets
	// connect_timeout.
	connectTimeout = 5 * time.Second
	// pingTimeout bounds the ping by which the pool tests a connection that was idle for a second. If no
	// answer comes, because the connection was lost without an error as in a failover, the pool replaces
	// the connection.
	pingTimeout = 2 * time.Second
	// drainTime is how long a connection stays open after its statement was given up. That is enough to
	// read the rest of an answer, so that a pooler does not see the connection reset.
	drainTime = time.Second
	// Grace is how long a statement may go on after its context has ended, in a pool of [Configure]. Almost all
	// statements end within that time, and their connections stay open. Otherwise each request whose caller hangs
	// up would cost a connection: the server would have to cancel the statement, end the session and begin another
	// one. One caller that hangs up again and again would so take all connections of a pool from the others. If a
	// statement must have ended at a time, its context ends Grace before.
	Grace = 250 * time.Millisecond
)

// Configure changes cfg, which pgxpool.ParseConfig has returned, so that a pool of it
//
//   - closes a connection on which the server refuses to write (SQLSTATE 25006): after a failover, writes
//     succeed only on a connection to the new primary;
//   - replaces connections that were lost without an error;
//   - lets a statement go on for a quarter of a second after its context has ended (Grace), so that a caller that
//     hangs up costs no connection;
//   - closes the connection of a statement that was given up, one second after that;
//   - returns times in UTC, and reads and writes values alike whatever the settings of the database are.
//
// Configure keeps the functions AfterConnect, BeforeClose and OnPgError of cfg, which run as well. It does
// not change the sizes of the pool. A [example.com/lockstep/pkg/eventing/txn.Writer] needs at least two
// connections.
func Configure(cfg *pgxpool.Config) {
	cfg.PingTimeout = pingTimeout
	cfg.BeforeClose = dropIfLost(cfg.BeforeClose)
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, connectTimeout)
	// Poolers accept both parameters when a connection begins. In times that Postgres sends as text, pgx reads
	// no other datestyle. With another encoding, Postgres would convert text that is UTF-8 already.
	cfg.ConnConfig.RuntimeParams["datestyle"], cfg.ConnConfig.RuntimeParams["client_encoding"] = "ISO, MDY", "UTF8"
	cfg.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn(), DeadlineDelay: Grace}
	}
	cfg.ConnConfig.OnPgError = closeIfReadOnly(cfg.ConnConfig.OnPgError)
	connected := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		// Otherwise a timestamptz is read in the machine's time zone.
		utc := &pgtype.TimestamptzCodec{ScanLocation: time.UTC}
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: utc})
		uuids.Register(conn.TypeMap()) // else pgx makes an error and drops it before it sends a UUID as text
		if connected == nil {
			return nil
		}
		return connected(ctx, conn)
	}
}

// dropIfLost returns the hook BeforeClose of a pool. If a statement was given up, the hook closes its
// connection drainTime later. pgx alone would go on reading until the server ends the connection, for up to
// 15 seconds, and the pool would have one connection less meanwhile. On a connection that was lost without
// an error, the server's end never comes. usual is the hook that the pool had before.
func dropIfLost(usual func(*pgx.Conn)) func(*pgx.Conn) {
	return func(conn *pgx.Conn) {
		if conn.IsClosed() {
			time.AfterFunc(drainTime, func() { _ = conn.PgConn().Conn().Close() })
		}
		if usual != nil {
			usual(conn)
		}
	}
}

// closeIfReadOnly returns a handler that makes pgx close a connection when the server refuses to write.
// After a failover the old primary may go on as a standby and answer every ping. The pool would then hand
// out the connections to that standby until they are an hour old. usual is the handler before.
func closeIfReadOnly(usual pgconn.PgErrorHandler) pgconn.PgErrorHandler {
	return func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != "25006" && usual(conn, err)
	}
}
