package pgtest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/variables"
)

func TestMain(m *testing.M) { Main(m) }

// inShell makes a child process of the test binary look at its variables.
const inShell = "LOCKSTEP_TEST_SHELL"

// TestAShellReachesNoTest runs itself with variables of a developer's shell.
func TestAShellReachesNoTest(t *testing.T) {
	t.Parallel()
	if os.Getenv(inShell) != "" {
		for _, variable := range os.Environ() {
			if name, _, _ := strings.Cut(variable, "="); variables.Forgets(name) {
				t.Errorf("a test has %s", name)
			}
		}
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAShellReachesNoTest$")
	child.Env = append(os.Environ(), inShell+"=1", "DATABASE_URL=postgres://db.example", "PUBSUB_EMULATOR_HOST=localhost:8085",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector.example:4317", "PGSERVICE=production")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDatabasesAreIsolated(t *testing.T) {
	t.Parallel()
	a, b := New(t), New(t)
	execute(t, a.Pool(t, a.Admin), `CREATE TABLE only_here (x int)`)
	var there bool
	query := `SELECT to_regclass('only_here') IS NOT NULL`
	if err := b.Pool(t, b.Admin).QueryRow(t.Context(), query).Scan(&there); err != nil || there {
		t.Errorf("the other database has the table: %v, %v", there, err)
	}
}

func TestDatabaseIsDroppedUnderItsSessions(t *testing.T) {
	t.Parallel()
	var db *DB
	t.Run("user", func(t *testing.T) {
		db = New(t)
		pool, err := pgxpool.New(t.Context(), db.Admin)
		if err != nil {
			t.Fatal(err)
		}
		execute(t, pool, "SELECT") // and leaves the session open
	})
	var there bool
	err := shared.admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, db.name).Scan(&there)
	if err != nil || there {
		t.Errorf("database is still there: %v, %v", there, err)
	}
}

// The service's role may use an example's tables, and gets no right to the library's that it
// would not have otherwise.
func TestExample(t *testing.T) {
	t.Parallel()
	db := NewExample(`CREATE TABLE orders (id text); CREATE TABLE parcels (id text)`)
	for sql, want := range map[string]bool{
		`INSERT INTO orders VALUES ('1')`: true, `UPDATE parcels SET id = '2'`: true, `SELECT FROM outbox`: true,
		`UPDATE operator_actions SET why = ''`: false,
	} {
		if _, err := db.Exec(t.Context(), sql); (err == nil) != want {
			t.Errorf("%s: %v", sql, err)
		}
	}
	db.Close()
	var there bool
	err := shared.admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, db.name).Scan(&there)
	if err != nil || there {
		t.Errorf("database is still there: %v, %v", there, err)
	}
}

func TestTerminateEndsThisDatabasesSessionsOnly(t *testing.T) {
	t.Parallel()
	db, bystander := New(t), New(t)
	hit, spared := session(t, db), session(t, bystander)
	db.Terminate(t)
	if _, err := hit.Exec(t.Context(), "SELECT"); err == nil {
		t.Error("the session lives on")
	}
	if _, err := spared.Exec(t.Context(), "SELECT"); err != nil {
		t.Errorf("another database's session ended: %v", err)
	}
	execute(t, db.Pool(t, db.URL), "SELECT")
}

func session(tb testing.TB, db *DB) *pgxpool.Conn {
	tb.Helper()
	conn, err := db.Pool(tb, db.URL).Acquire(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Release)
	return conn
}

func execute(tb testing.TB, pool *pgxpool.Pool, sql string) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), sql); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// Without a pooler the next transaction finds the state of the session; with a
// pooler it does not.
func TestPooledSessionsKeepNothing(t *testing.T) {
	t.Parallel()
	db := New(t)
	for name, want := range map[string]string{db.URL: "mine", db.Pooled(t, db.URL): ""} {
		conn, err := pgx.Connect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		if _, err := conn.Exec(t.Context(), `SELECT set_config('my.setting', 'mine', false)`); err != nil {
			t.Fatal(err)
		}
		var got string
		read := func(tx pgx.Tx) error {
			for range 2 {
				if err := tx.QueryRow(t.Context(), `SELECT coalesce(current_setting('my.setting', true), '')`).Scan(&got); err != nil {
					return err
				}
			}
			return nil
		}
		if err := pgx.BeginFunc(t.Context(), conn, read); err != nil || got != want {
			t.Errorf("the next transaction finds %q (%v), want %q", got, err, want)
		}
	}
}

// Two clients that are idle in turns share one session.
func TestPgBouncerPools(t *testing.T) {
	t.Parallel()
	db := New(t)
	url := db.PgBouncer(t, db.URL)
	sessions := map[int]bool{}
	for range 2 {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		var pid int
		if err := conn.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		sessions[pid] = true
	}
	if len(sessions) != 1 {
		t.Errorf("two clients have %d sessions", len(sessions))
	}
}
