package txn

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/tenant"
)

// patience ends a test that would otherwise hang.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { pgtest.Main(m) }

// openWith is a pool with a number of connections.
func openWith(t *testing.T, url, conns string) *pgxpool.Pool {
	t.Helper()
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	pool, err := pgxpool.New(t.Context(), url+separator+"pool_max_conns="+conns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// inside is a write in progress. It ends when the test calls end, or when the test
// ends.
type inside struct {
	started chan struct{}
	end     func()
	err     chan error
}

func begin(t *testing.T, w *Writer, key string) inside {
	t.Helper()
	end := make(chan struct{})
	in := inside{make(chan struct{}), sync.OnceFunc(func() { close(end) }), make(chan error, 1)}
	t.Cleanup(in.end)
	go func() {
		in.err <- w.Write(t.Context(), tenant.All(), key, func(*Tx) error {
			close(in.started)
			<-end
			return nil
		})
	}()
	return in
}

func (w *Writer) callers(key string) int {
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	if p := w.gate.keys[key]; p != nil {
		return p.callers
	}
	return 0
}

// lock takes a lock that hold has taken before.
const lock = `SELECT pg_advisory_xact_lock(1)`

// hold takes a lock in another session, until unlock is called or the test ends.
func hold(t *testing.T, db *pgtest.DB) (unlock func()) {
	t.Helper()
	holder := pgtest.Begin(t, db.Pool(t, db.Admin))
	t.Cleanup(func() { _ = holder.Rollback(context.Background()) })
	pgtest.Exec(t, holder, lock)
	return func() {
		pgtest.End(t, holder.Rollback)
	}
}

func TestWritesLeaveAConnectionToReads(t *testing.T) {
	t.Parallel()
	pool := openWith(t, pgtest.New(t).URL, "3")
	w := NewWriter(pool)
	w.budget = patience // the third does not give up
	first, second := begin(t, w, "a"), begin(t, w, "b")
	<-first.started
	<-second.started
	third := begin(t, w, "c")
	pgtest.Until(t, "the third is there", func() bool { return w.callers("c") == 1 })
	reading, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 100 {
		if _, err := pool.Exec(reading, `SELECT`); err != nil {
			t.Fatalf("a read during the writes: %v", err)
		}
	}
	select {
	case <-third.started:
		t.Error("writes have every connection")
	default:
	}
	for _, in := range []inside{first, second, third} {
		in.end()
		if err := <-in.err; err != nil {
			t.Error(err)
		}
	}
	pgtest.Until(t, "no caller is at the gate", func() bool { w.gate.mu.Lock(); defer w.gate.mu.Unlock(); return len(w.gate.keys) == 0 })
}

func TestRequestsForOneKeyHoldOneConnection(t *testing.T) {
	t.Parallel()
	pool := openWith(t, pgtest.New(t).URL, "3")
	w := NewWriter(pool)
	w.budget = patience // none gives up
	in := begin(t, w, "a")
	<-in.started
	const requests = 100
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	ended := make(chan error, requests)
	for range requests {
		go func() {
			ended <- w.Write(ctx, tenant.All(), "a", func(*Tx) error { t.Error("two have the key"); return nil })
		}()
	}
	pgtest.Until(t, "all wait", func() bool { return w.callers("a") == requests+1 })
	if n := pool.Stat().AcquiredConns(); n != 1 {
		t.Errorf("they hold %d connections", n)
	}
	other := begin(t, w, "b")
	<-other.started
	other.end()
	if err := <-other.err; err != nil {
		t.Error(err)
	}
	hangUp()
	for range requests {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a client that has gone: %v", err)
		}
	}
	in.end()
	if err := <-in.err; err != nil {
		t.Error(err)
	}
}

// A read with the same text may fail on a connection, after which pgx has forgotten the statement. A
// write on this connection still waits no longer for the lock than others. The same holds if the
// connection prepares nothing.
func TestALockedTableAfterAFailedRead(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec"} {
		db := pgtest.New(t)
		admin := db.Pool(t, db.Admin)
		pool := openWith(t, db.URL, "1&default_query_exec_mode="+mode)
		w := NewWriter(pool)
		const read = `SELECT FROM app.locked`
		pgtest.Exec(t, admin, `CREATE TABLE app.locked (); GRANT ALL ON app.locked TO PUBLIC`)
		write := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*lockBudget) // a statement that waits for the lock reaches it
			defer cancel()
			return w.Write(ctx, tenant.All(), "a", func(tx *Tx) error {
				b := &pgx.Batch{}
				b.Queue(read)
				return tx.WithCommit().SendBatch(ctx, b).Close()
			})
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		holder := pgtest.Begin(t, admin)
		pgtest.Exec(t, holder, `LOCK TABLE app.locked IN ACCESS EXCLUSIVE MODE`)
		pgtest.Exec(t, pool, `SET lock_timeout = '1ms'`)
		failing := &pgx.Batch{}
		failing.Queue(read)
		if err := pool.SendBatch(t.Context(), failing).Close(); !IsLockTimeout(err) {
			t.Fatalf("the read: %v", err)
		}
		pgtest.Exec(t, pool, `RESET lock_timeout`)
		if err := write(); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: %v, want ErrLocked", mode, err)
		}
		pgtest.End(t, holder.Rollback)
	}
}

// Of the requests without a key that meet a lock, few wait, and the others fail at once. Otherwise they
// would take all turns.
func TestLockedRequestsWithoutAKeyAreBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	w := NewWriter(openWith(t, db.URL, "3"))
	w.budget = 5 * lockBudget
	unlock := hold(t, db)
	tries, answers := make(chan struct{}, 1000), make(chan error, maxBehindLock+1)
	write := func() error {
		return w.Write(t.Context(), tenant.All(), "", func(tx *Tx) error {
			tries <- struct{}{}
			b := &pgx.Batch{}
			b.Queue(lock)
			return tx.SendBatch(t.Context(), b).Close()
		})
	}
	go func() { answers <- write() }()
	<-tries
	<-tries // so it has met the lock
	for range maxBehindLock {
		go func() { answers <- write() }()
	}
	pgtest.Until(t, "as many wait as may", func() bool { return w.callers("") == maxBehindLock+1 })
	if err := write(); !errors.Is(err, ErrLocked) {
		t.Errorf("one more: %v", err)
	}
	unlock()
	for range maxBehindLock + 1 {
		if err := <-answers; err != nil {
			t.Errorf("after the lock: %v", err)
		}
	}
}

// A locked table delays only the writes to that table, whether or not their statement is prepared already,
// and whether or not an earlier write has met the lock.
func TestALockedTable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Pool(t, db.Admin)
	for _, mode := range []string{"SHARE", "ACCESS EXCLUSIVE"} {
		for _, key := range []string{"", "a"} {
			w := NewWriter(openWith(t, db.URL, "2"))
			write := func(sql string) error {
				ctx, cancel := context.WithTimeout(t.Context(), 10*lockBudget) // a statement that waits for the lock reaches it
				defer cancel()
				return w.Write(ctx, tenant.All(), key, func(tx *Tx) error {
					b := &pgx.Batch{}
					b.Queue(sql)
					return tx.WithCommit().SendBatch(ctx, b).Close()
				})
			}
			pgtest.Exec(t, admin, `CREATE TABLE IF NOT EXISTS app.locked (); CREATE TABLE IF NOT EXISTS app.free ();
				GRANT ALL ON ALL TABLES IN SCHEMA app TO PUBLIC`)
			const insert = `INSERT INTO app.locked DEFAULT VALUES`
			if err := write(insert); err != nil {
				t.Fatal(err)
			}
			holder := pgtest.Begin(t, admin)
			pgtest.Exec(t, holder, `LOCK TABLE app.locked IN `+mode+` MODE`)
			for _, sql := range []string{insert, insert, insert + ` -- not prepared yet`} {
				if err := write(sql); !errors.Is(err, ErrLocked) {
					t.Errorf("in %s mode with the key %q: %v, want ErrLocked", mode, key, err)
				}
			}
			if err := write(`INSERT INTO app.free DEFAULT VALUES`); err != nil {
				t.Errorf("another table: %v", err)
			}
			pgtest.End(t, holder.Rollback)
			if err := write(insert); err != nil {
				t.Errorf("after the lock: %v", err)
			}
		}
	}
}

// Between its tries a write holds no connection. While the lock is known, few requests
// wait for it; after it is released, any number may again.
func TestALockedKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := openWith(t, db.URL, "3")
	w := NewWriter(pool)
	w.budget = 5 * lockBudget // on a busy machine, too, none gives up before all wait
	unlock := hold(t, db)
	tries := make(chan struct{}, 1000)
	write := func() error {
		return w.Write(t.Context(), tenant.All(), "a", func(tx *Tx) error {
			tries <- struct{}{}
			b := &pgx.Batch{}
			b.Queue(lock)
			return tx.SendBatch(t.Context(), b).Close()
		})
	}
	var waiting sync.WaitGroup
	answers := make(chan error, maxBehindLock+1)
	waiting.Go(func() { answers <- write() })
	<-tries
	<-tries // so it has met the lock
	for range maxBehindLock {
		waiting.Go(func() { answers <- write() })
	}
	pgtest.Until(t, "as many wait as may", func() bool { return w.callers("a") == maxBehindLock+1 })
	if _, ok := w.gate.join("a", time.Now().Add(-w.budget)); ok {
		t.Fatal("one more waits")
	}
	if err := write(); !errors.Is(err, ErrLocked) {
		t.Errorf("one more: %v", err)
	}
	pgtest.Until(t, "no connection is held", func() bool { return pool.Stat().AcquiredConns() == 0 })
	waiting.Wait()
	for range maxBehindLock + 1 {
		if err := <-answers; !errors.Is(err, ErrLocked) {
			t.Errorf("who has waited: %v", err)
		}
	}
	unlock()
	for range 3 * maxBehindLock {
		waiting.Go(func() {
			if err := write(); err != nil {
				t.Errorf("after the lock: %v", err)
			}
		})
	}
	waiting.Wait()
}
