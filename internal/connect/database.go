package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	uuids "github.com/vgarvardt/pgx-google-uuid/v5"

	"example.com/lockstep/pkg/eventing/backoff"
)

// errDatabaseURL wraps no error of the parser, which may quote the password.
var errDatabaseURL = errors.New("DATABASE_URL cannot be parsed")

const (
	// connectTimeout is for one address of the database.
	connectTimeout = 5 * time.Second
	// RequestConns are for requests if the URL does not say pool_max_conns. The number
	// does not depend on the machine, because an operator adds up the connections of
	// instances.
	RequestConns = 4
	// LoopConns are for the loops of one process.
	LoopConns = 4
	// ProbeConns are for its readiness.
	ProbeConns = 1
	// awaitTime is for a network that comes up after the process: on Cloud Run direct
	// egress to a VPC needs a minute or more, and the sockets of Cloud SQL a moment.
	awaitTime = 90 * time.Second
	// closeTime bounds the closing of the connection to a server that has answered.
	closeTime = 5 * time.Second
)

// OpenPool returns a traced pool for requests; its times are in UTC. It connects when it is
// first used, so that a service starts while its database is down. Behind a transaction
// pooler the url says default_query_exec_mode=exec. Close the pool after the last use.
func OpenPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	return newPool(ctx, url, func(cfg *pgxpool.Config) {
		if !strings.Contains(url, "pool_max_conns") {
			cfg.MaxConns = RequestConns
		}
	})
}

// ReservePool is OpenPool with exactly conns connections, regardless of the url: for a part of
// the process that goes on while requests wait.
func ReservePool(ctx context.Context, url string, conns int32) (*pgxpool.Pool, error) {
	return newPool(ctx, url, func(cfg *pgxpool.Config) { cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = conns, 0, 0 })
}

// OwnerPool is OpenPool for an operator who changes tables: as the owner of a schema or an
// administrator, past a transaction pooler. connected prepares each session.
func OwnerPool(ctx context.Context, url string, connected func(context.Context, *pgx.Conn) error) (*pgxpool.Pool, error) {
	return newPool(ctx, url, func(cfg *pgxpool.Config) { cfg.MaxConns, cfg.AfterConnect = RequestConns, connected })
}

func newPool(ctx context.Context, url string, size func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errDatabaseURL
	}
	size(cfg)
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, connectTimeout)
	cfg.ConnConfig.Tracer = newTracer()
	cfg.ConnConfig.OnPgError = closeIfReadOnly(cfg.ConnConfig.OnPgError)
	connected := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		// Otherwise a timestamptz is read in the machine's time zone.
		utc := &pgtype.TimestamptzCodec{ScanLocation: time.UTC}
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: utc})
		uuids.Register(conn.TypeMap()) // else pgx sends each as text, after errors that it makes and drops
		if connected == nil {
			return nil
		}
		return connected(ctx, conn)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	countWaits(pool)
	return pool, nil
}

// closeIfReadOnly has a connection closed when its server refuses to write. After a
// failover the old primary may go on as a standby and answer every ping: the pool would
// hand out its connections until they are an hour old.
func closeIfReadOnly(usual pgconn.PgErrorHandler) pgconn.PgErrorHandler {
	return func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != "25006" && usual(conn, err)
	}
}

var awaitPause = backoff.Policy{Base: 250 * time.Millisecond, Cap: 3 * time.Second}

// AwaitDatabase returns when a server of Postgres answers at url, or an error after 90 seconds.
// It takes the place of a service's startup probe in a process that runs once and ends.
// AwaitDatabase calls said with the error of each failed attempt. Every answer of the server
// counts, also a refused password: the caller will find that out.
func AwaitDatabase(ctx context.Context, url string, said func(error)) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return errDatabaseURL
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, awaitTime, fmt.Errorf("no database after %s", awaitTime))
	defer cancel()
	for range awaitPause.Attempts(ctx) {
		if err = answers(ctx, config); err == nil {
			return nil
		}
		said(err)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// starting are the refusals of a server that will answer soon: it starts, or stops to
// start again, or has no place for another session.
var starting = map[string]bool{"57P01": true, "57P02": true, "57P03": true, "53300": true}

func answers(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && !starting[refused.Code] {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = conn.Close(ctx) // it has answered
	return nil
}

// UnverifiedServer returns the first public host of a Postgres URL whose certificate or name
// would not be checked, so that another machine could answer in its place. It returns "" if
// there is none, and for a URL that cannot be parsed, which OpenPool refuses.
func UnverifiedServer(url string) (host string) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return ""
	}
	if unverified(config.Host, config.TLSConfig) {
		return config.Host
	}
	// Further hosts, and the plain connection that sslmode=prefer falls back to.
	for _, fallback := range config.Fallbacks {
		if unverified(fallback.Host, fallback.TLSConfig) {
			return fallback.Host
		}
	}
	return ""
}

// unverified reports whether host is public and its name goes unchecked. That includes
// sslmode=verify-ca, for which pgx sets InsecureSkipVerify and checks the certificate alone.
func unverified(host string, config *tls.Config) bool {
	if config != nil && !config.InsecureSkipVerify {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast()
	}
	// A name without a dot is of this machine or of its containers, a path is a socket.
	return !strings.HasPrefix(host, "/") && strings.Contains(host, ".")
}
