package connect

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
)

func TestMain(m *testing.M) { pairtest.Main(m) }

func TestErrorsKeepThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:secret@db:port/x", "postgres://u:secret@[/x", "host=db password=secret port=x"} {
		if pool, err := OpenPool(t.Context(), url); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", url, pool, err)
		}
	}
}

// A process that waits for its database says once why it waits, however often it tries.
func TestAwaitDatabaseDoesNotRepeatItself(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for tries := 1; ; tries++ {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			conn.Close()
			if tries == 4 {
				cancel()
			}
		}
	}()
	var said []error
	err = AwaitDatabase(ctx, "postgres://"+lis.Addr().String()+"/x?sslmode=disable", func(err error) { said = append(said, err) })
	if !errors.Is(err, context.Canceled) || len(said) != 1 {
		t.Errorf("%v; it has said %v", err, said)
	}
}

// Both modes are tested, because behind a pooler there are no prepared statements.
func TestTimesAreUTC(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	for _, mode := range []string{"cache_statement", "exec"} {
		separator := "?"
		if strings.Contains(db.VideoURL, "?") {
			separator = "&"
		}
		pool, err := OpenPool(t.Context(), db.VideoURL+separator+"default_query_exec_mode="+mode)
		if err != nil {
			t.Fatal(err)
		}
		var at time.Time
		var missing *time.Time
		row := pool.QueryRow(t.Context(), `SELECT '2026-03-04 05:06:07.891011+03'::timestamptz, NULL::timestamptz`)
		if err := row.Scan(&at, &missing); err != nil || at.Location() != time.UTC || missing != nil {
			t.Errorf("%s: %v, %v, %v; want UTC", mode, at, missing, err)
		}
		pool.Close()
	}
}

// In text a value has the form that settings of the server name, and pgx reads one form of each type. Text is
// UTF-8 in the database, too.
func TestTheFormsOfTextOfADatabaseDoNotMatter(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	for setting, value := range map[string]string{
		"DateStyle": "German, DMY", "IntervalStyle": "iso_8601", "bytea_output": "escape", "client_encoding": "LATIN1", "array_nulls": "off",
	} {
		alter := `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET ` + setting + ` = %L', current_database(), '` + value + `'); END $$`
		pgtest.Exec(t, db.Pool(t, db.Admin), alter)
	}
	u, err := url.Parse(db.VideoURL)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("default_query_exec_mode", "exec")
	u.RawQuery = query.Encode()
	pool, err := OpenPool(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	want := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	var at time.Time
	if err := pool.QueryRow(t.Context(), `SELECT '2026-03-04 05:06:07Z'::timestamptz`).Scan(&at); err != nil || !at.Equal(want) {
		t.Errorf("%v, %v; want %v", at, err, want)
	}
	var waited time.Duration
	var data []byte
	var characters int
	var missing bool
	err = pool.QueryRow(t.Context(), `SELECT interval '90 seconds', '\xff00'::bytea, length($1::text), ($2::text[])[1] IS NULL`,
		"Grüße", []*string{nil}).Scan(&waited, &data, &characters, &missing)
	if err != nil || waited != 90*time.Second || !bytes.Equal(data, []byte{255, 0}) || characters != 5 || !missing {
		t.Errorf("%s, %v, %d characters, a missing value: %v, %v", waited, data, characters, missing, err)
	}
}

// Connections that are lost without an error, as in a failover, are replaced: those that were idle when
// they are used next, and the others after the time limit of their statement.
func TestLostConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	opened, err := ReservePool(t.Context(), db.VideoURL, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for name, idle := range map[string]bool{"idle": true, "in use": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := opened.Config().Copy()
			cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return idle }
			configured := pgtest.Open(t, cfg)
			pool, freeze := pgtest.Freezable(t, configured)
			query := func(patience time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := pool.Exec(ctx, `SELECT 1`)
				return err
			}
			if err := query(time.Minute); err != nil {
				t.Fatal(err)
			}
			freeze()
			if !idle {
				if err := query(100 * time.Millisecond); err == nil {
					t.Error("a lost connection answers")
				}
			}
			if err := query(10 * time.Second); err != nil { // pgx's own limit is 15 s
				t.Errorf("the next statement: %v", err)
			}
		})
	}
}

// The network is lost while a statement runs, and the process ends.
func TestCloseDoesNotWaitForALostNetwork(t *testing.T) {
	t.Parallel()
	opened, err := ReservePool(t.Context(), pairtest.New(t).VideoURL, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	cfg := opened.Config().Copy()
	var lost atomic.Bool
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if lost.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, network, addr)
	}
	pool := pgtest.Open(t, cfg)
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := pool.Exec(ctx, `SELECT pg_sleep(60)`); err == nil {
		t.Error("the statement was not given up")
	}
	started := time.Now()
	Pools{pool, nil, nil}.Close()
	if time.Since(started) > 5*time.Second { // pgx's own limit is 15 s
		t.Errorf("it took %s", time.Since(started))
	}
}

// A primary that a failover has turned into a standby keeps its connections.
func TestReadOnlyConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	separator := "?"
	if strings.Contains(db.VideoURL, "?") {
		separator = "&"
	}
	pool, err := OpenPool(t.Context(), db.VideoURL+separator+"pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pgtest.Exec(t, pool, `SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`)
	const write = `DELETE FROM idempotency_keys`
	var refused *pgconn.PgError
	if _, err := pool.Exec(t.Context(), write); !errors.As(err, &refused) || refused.Code != "25006" {
		t.Fatalf("%v, want the server's own error", err)
	}
	if _, err := pool.Exec(t.Context(), write); err != nil {
		t.Errorf("the connection is still in use: %v", err)
	}
	readOnly := func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET TRANSACTION READ ONLY`); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), write)
		return err
	}
	if err := pgx.BeginFunc(t.Context(), pool, readOnly); !errors.As(err, &refused) {
		t.Errorf("%v, want the server's own error", err)
	}
	for range 3 {
		if _, err := pool.Exec(t.Context(), `SELECT FROM no_table`); err == nil {
			t.Error("there is such a table")
		}
	}
	if n := pool.Stat().NewConnsCount(); n != 3 {
		t.Errorf("%d connections were made, want one, and one for each that was read-only", n)
	}
	if _, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`); err == nil {
		t.Error("a fatal error goes unnoticed")
	}
	if _, err := pool.Exec(t.Context(), write); err != nil {
		t.Error(err)
	}
}

// Reserved connections are not a share of the URL's number, and that number does not
// depend on the machine.
func TestConnectionsOfAProcess(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]int32{"postgres://u@h/d": 4, "postgres://u@h/d?pool_max_conns=9&pool_min_conns=5": 9} {
		pool, err := OpenPool(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		pool.Close()
		if n := pool.Config().MaxConns; n != want {
			t.Errorf("%s: %d connections for requests, want %d", url, n, want)
		}
		if pool, err = ReservePool(t.Context(), url, LoopConns); err != nil {
			t.Fatal(err)
		}
		pool.Close()
		if c := pool.Config(); c.MaxConns != LoopConns || c.MinConns != 0 {
			t.Errorf("%s: %d to %d connections are reserved", url, c.MinConns, c.MaxConns)
		}
	}
}

// A caller that hangs up costs the pool of requests no connection, because its statement soon ends.
func TestAHangUpCostsRequestsNoConnection(t *testing.T) {
	t.Parallel()
	pools, err := OpenPools(t.Context(), pairtest.New(t).VideoURL)
	if err != nil {
		t.Fatal(err)
	}
	defer pools.Close()
	// On a busy machine a statement may take longer than it is given.
	const wanted, most = 3, 30
	kept := 0
	for n := 0; n < most && kept < wanted; n++ {
		if err := pools.Requests.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := pools.Requests.Stat().NewConnsCount()
		hasty, hangUp := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, _ = pools.Requests.Exec(hasty, `SELECT pg_sleep(0.1)`) // it may have its result
		hangUp()
		if err := pools.Requests.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pools.Requests.Stat().NewConnsCount() == before {
			kept++
		}
	}
	if kept < wanted {
		t.Errorf("%d connections of %d are kept", kept, most)
	}
}
