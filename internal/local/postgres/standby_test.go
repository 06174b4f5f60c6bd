package postgres

import (
	"testing"
	"time"
)

// A standby is a copy that follows the primary, and takes its place when the
// primary is killed with a session open. The next standby takes the place of
// the dead one.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	at, err := freePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	primary, err := Start(t.Context(), Options{Port: at})
	if err != nil {
		t.Fatal(err)
	}
	defer primary.Close()
	run(t, primary, `CREATE TABLE kept (n int)`)
	standby, err := primary.Standby(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close()
	run(t, primary, `INSERT INTO kept VALUES (1)`)
	follows(t, standby, "1")

	session := connect(t, primary.URL())
	if err := primary.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := session.Ping(t.Context()); err == nil {
		t.Error("a session of the killed server answers")
	}
	if err := primary.Close(); err != nil {
		t.Error(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, standby, `INSERT INTO kept VALUES (2)`)

	next, err := standby.Standby(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if next.URL() != primary.URL() {
		t.Errorf("the next standby is at %s, want %s", next.URL(), primary.URL())
	}
	run(t, standby, `INSERT INTO kept VALUES (3)`)
	follows(t, next, "3")
}

func run(t *testing.T, s *Server, sql string) {
	t.Helper()
	if _, err := connect(t, s.URL()).Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// follows waits until s has this many rows.
func follows(t *testing.T, s *Server, want string) {
	t.Helper()
	conn, deadline := connect(t, s.URL()), time.After(startTime)
	for ask(t, conn, `SELECT count(*)::text FROM kept`) != want {
		select {
		case <-time.After(pollInterval):
		case <-deadline:
			t.Fatal("the standby does not follow")
		}
	}
}
