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
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/dbpool"
)

// errDatabaseURL does not wrap the parser's error, which may quote the password.
var errDatabaseURL = errors.New("DATABASE_URL cannot be parsed")

const (
	// connectTimeout bounds the connection of AwaitDatabase to one address of the database.
	connectTimeout = 5 * time.Second
	// RequestConns is the size of the pool for requests if the URL does not set pool_max_conns. The
	// size does not depend on the machine, so that an operator can add up the connections of all
	// instances.
	RequestConns = 4
	// LoopConns is the size of the pool for the loops of one process.
	LoopConns = 4
	// ProbeConns is the size of the pool for the readiness of one process.
	ProbeConns = 1
	// awaitTime bounds AwaitDatabase. It is long enough for a network that comes up after the process.
	// On Cloud Run direct egress to a VPC needs a minute or more, and the sockets of Cloud SQL need a
	// moment.
	awaitTime = 90 * time.Second
	// sayAgain is how often AwaitDatabase reports an error.
	sayAgain = 10 * time.Second
	// closeTime bounds the closing of a connection after the server has answered.
	closeTime = 5 * time.Second
)

// OpenPool returns a traced pool for requests, or for an operator's command. The pool returns times in UTC, and connects when it
// is first used, so a service can start while its database is down. Behind a transaction pooler the
// url must have default_query_exec_mode=exec. Close the pool after the last use.
func OpenPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	return newPool(ctx, url, func(cfg *pgxpool.Config) { sizeForRequests(cfg, url) })
}

func sizeForRequests(cfg *pgxpool.Config, url string) {
	if !strings.Contains(url, "pool_max_conns") {
		cfg.MaxConns = RequestConns
	}
}

// ReservePool is like OpenPool, but the pool has at most conns connections, whatever the url says.
// It is for a part of the process that must go on while requests wait for a connection.
func ReservePool(ctx context.Context, url string, conns int32) (*pgxpool.Pool, error) {
	return newPool(ctx, url, func(cfg *pgxpool.Config) { cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = conns, 0, 0 })
}

// OwnerPool is like OpenPool, but for an operator who changes tables. The url must connect as the
// owner of a schema or as an administrator, and not through a transaction pooler. OwnerPool calls
// connected to prepare each new session.
func OwnerPool(ctx context.Context, url string, connected func(context.Context, *pgx.Conn) error) (*pgxpool.Pool, error) {
	return newPool(ctx, url, func(cfg *pgxpool.Config) { cfg.MaxConns, cfg.AfterConnect = RequestConns, connected })
}

func newPool(ctx context.Context, url string, size func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errDatabaseURL
	}
	size(cfg)
	dbpool.Configure(cfg)
	cfg.ConnConfig.Tracer = newTracer(otel.GetTracerProvider())
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	countWaits(pool)
	return pool, nil
}

var awaitPause = backoff.Policy{Base: 250 * time.Millisecond, Cap: 3 * time.Second}

// AwaitDatabase returns nil when a Postgres server answers at url, or an error after 90 seconds or
// when ctx ends. It is for a process that runs once and ends, because such a process has no startup probe.
// AwaitDatabase calls the function said with the error of a failed attempt, at most once in ten
// seconds. A refused login, such as for a wrong password, is also an answer, because the caller will
// get the same refusal. The exception is a refusal that may end soon (see the function passes): it counts as a
// failed attempt.
func AwaitDatabase(ctx context.Context, url string, said func(error)) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return errDatabaseURL
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, awaitTime, fmt.Errorf("no database after %s", awaitTime))
	defer cancel()
	sometimes := rate.Sometimes{Interval: sayAgain}
	for range awaitPause.Attempts(ctx) {
		if err = answers(ctx, config); err == nil {
			return nil
		}
		sometimes.Do(func() { said(err) })
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// passes reports whether a server that refuses a login with this code may accept one soon. The server
// starts, or stops to start again, or lacks a free session, memory for its locks, or room on its disk.
func passes(code string) bool {
	return code == "57P01" || code == "57P02" || code == "57P03" || strings.HasPrefix(code, "53")
}

func answers(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && !passes(refused.Code) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = conn.Close(ctx) // the server has answered
	return nil
}

// UnverifiedServer returns the first public host in a Postgres URL for which pgx would not check
// the certificate or the name. Another machine could answer in the place of such a host. If there
// is no such host, UnverifiedServer returns "". It also returns "" for a URL that cannot be parsed,
// because OpenPool refuses that URL.
func UnverifiedServer(url string) (host string) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return ""
	}
	if unverified(config.Host, config.TLSConfig) {
		return config.Host
	}
	// config.Fallbacks has the other hosts of the URL and, with sslmode=prefer, each host without TLS.
	for _, fallback := range config.Fallbacks {
		if unverified(fallback.Host, fallback.TLSConfig) {
			return fallback.Host
		}
	}
	return ""
}

// unverified reports whether host is public and its name is not checked. The name is not checked
// with sslmode=verify-ca either, because pgx then sets InsecureSkipVerify and checks only the
// certificate.
func unverified(host string, config *tls.Config) bool {
	if config != nil && !config.InsecureSkipVerify {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast()
	}
	// A name without a dot is a name of this machine or of its containers. A path is a socket.
	return !strings.HasPrefix(host, "/") && strings.Contains(host, ".")
}
