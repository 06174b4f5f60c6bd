package notify_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/migrate"
	"example.com/lockstep/pkg/eventing/notify"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds a test that would otherwise hang.
const patience = 2 * time.Minute

// process is one end, with the notifications that it has received.
type process struct {
	*notify.Notifier
	heard chan notify.Notification
}

// join starts a process on db that listens at listenURL.
func join(t *testing.T, db *pgtest.DB, url, listenURL string) process {
	t.Helper()
	return joined(t, notify.New(db.Pool(t, url), listenURL, "test", slog.New(slog.DiscardHandler)))
}

// joined starts a process with b as its end.
func joined(t *testing.T, b *notify.Notifier) process {
	t.Helper()
	p := process{b, make(chan notify.Notification, 100)}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, func(b notify.Notification) { p.heard <- b }) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return p
}

// next waits for a notification that mentions key.
func (p process) next(t *testing.T, key string) notify.Notification {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case b := <-p.heard:
			if b.Mentions(key) {
				return b
			}
		case <-deadline:
			t.Fatalf("not notified of %q", key)
		}
	}
}

// everything waits until p is notified that it may have missed any key.
func (p process) everything(t *testing.T) { t.Helper(); p.next(t, "a key that no process publishes") }

// A notifier also works with a pool that gets its password or role from hooks.
func TestNotifierUsesThePoolsHooks(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	cfg := pgtest.Settings(t, db.Admin)
	own, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.User, c.Password = own.User, own.Password
		return nil
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET search_path = public`)
		return err
	}
	pool := pgtest.Open(t, cfg)
	p := joined(t, notify.New(pool, "", "test", slog.New(slog.DiscardHandler)))
	p.everything(t)
	_, err = db.Pool(t, db.URL).Exec(t.Context(), `SELECT pg_notify('test.public', 'another one *')`)
	if err != nil {
		t.Fatal(err)
	}
	p.everything(t)
	var role string
	err = db.Pool(t, db.Admin).QueryRow(t.Context(),
		`SELECT usename FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`).Scan(&role)
	if err != nil || role != own.User {
		t.Errorf("it listens as %q (%v), want %q", role, err, own.User)
	}
}

// A limit of the server for idle sessions does not end the session that listens.
func TestAnIdleListenerStays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Pool(t, db.Admin)
	_, err := admin.Exec(t.Context(), `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET idle_session_timeout = 500', current_database()); END $$`)
	if err != nil {
		t.Fatal(err)
	}
	p := join(t, db, db.URL, "")
	p.everything(t)
	var first int
	for idle := false; !idle; {
		var pid int
		err := admin.QueryRow(t.Context(), `
			SELECT pid, clock_timestamp() > state_change + interval '1 second' FROM pg_stat_activity
			 WHERE datname = current_database() AND query LIKE 'LISTEN %'`).Scan(&pid, &idle)
		if err != nil || first != 0 && pid != first {
			t.Fatalf("the session that listens was %d, and is %d (%v)", first, pid, err)
		}
		first = pid
	}
}

func TestOthersAreNotified(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first, second := join(t, db, db.URL, ""), join(t, db, db.URL, db.URL+"&pool_max_conns=7")
	other := migrate.Schema{Name: "other", Role: "other_service"}
	if err := other.Up(t.Context(), db.Admin, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	elsewhere := join(t, db, db.As(t, other.Role), "")
	for _, p := range []process{first, second, elsewhere} {
		p.everything(t)
		if !p.Connected() {
			t.Error("receives nothing")
		}
	}
	first.Publish("a", "b")
	if b := second.next(t, "a"); !b.Mentions("b") || b.Mentions("c") {
		t.Error("a and b were published, and not c")
	}
	first.Publish("d")
	if b := second.next(t, "d"); b.Mentions("a") {
		t.Error("a was published once, and notified twice")
	}
	var many []string
	for i := range 1001 {
		many = append(many, fmt.Sprint("key ", i))
	}
	second.Publish(many[:1000]...)
	if b := first.next(t, many[0]); !b.Mentions(many[999]) || b.Mentions("c") {
		t.Error("a thousand keys do not fit")
	}
	second.Publish(many...)
	first.everything(t)
	if len(elsewhere.heard) != 0 || len(second.heard) != 0 {
		t.Error("another schema was notified, or a process of its own notification")
	}
}

func TestAConnectionThatBreaksIsReplaced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first, second := join(t, db, db.URL, ""), join(t, db, db.URL, "")
	first.everything(t)
	second.everything(t)
	db.Terminate(t)
	first.everything(t) // it receives nothing now
	first.everything(t) // and receives again
	pgtest.Until(t, "it receives again", first.Connected)
	second.Publish("a") // may be lost, with a pooled connection that was ended too
	second.Publish("a")
	second.everything(t)
	second.everything(t)
	second.Publish("b")
	first.next(t, "b")
}

// A notifier that cannot listen still sends notifications.
func TestWithoutListening(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	unconnected := join(t, db, db.URL, "postgres://nobody@127.0.0.1:1/nowhere")
	other := join(t, db, db.URL, "")
	other.everything(t)
	unconnected.Publish("a")
	other.next(t, "a")
	if unconnected.Connected() {
		t.Error("connected without a connection")
	}
}

// Between two notifications is a pause, because each takes a lock of the whole cluster.
func TestNotificationsArePaused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	n := notify.New(db.Pool(t, db.URL), "", "test", slog.New(slog.DiscardHandler))
	n.Every = 24 * time.Hour
	slow, other, witness := joined(t, n), join(t, db, db.URL, ""), join(t, db, db.URL, "")
	for _, p := range []process{slow, other, witness} {
		p.everything(t)
	}
	slow.Publish("first")
	witness.next(t, "first")
	slow.Publish("second")
	hung := time.After(patience)
	for i := range 50 { // a second notification would come before or after one of these
		key := fmt.Sprint("key ", i)
		other.Publish(key)
		for found := false; !found; {
			select {
			case b := <-witness.heard:
				if found = b.Mentions(key); b.Mentions("second") && !b.Mentions("a key that no process publishes") {
					t.Fatal("a second notification has come at once")
				}
			case <-hung:
				t.Fatalf("not notified of %q", key)
			}
		}
	}
}

// The error of a URL that cannot be parsed, which is logged, does not quote the password.
func TestTheLogHasNoPassword(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	said := make(chan []byte, 1)
	n := notify.New(db.Pool(t, db.URL), "host=localhost password = 'secret", "test", slog.New(slog.NewTextHandler(first(said), nil)))
	joined(t, n)
	select {
	case line := <-said:
		if bytes.Contains(line, []byte("secret")) || !bytes.Contains(line, []byte("cannot be parsed")) {
			t.Errorf("%s", line)
		}
	case <-time.After(patience):
		t.Error("nothing is logged")
	}
}

// first is the first line of a log.
type first chan []byte

func (f first) Write(line []byte) (int, error) {
	select {
	case f <- bytes.Clone(line):
	default:
	}
	return len(line), nil
}
