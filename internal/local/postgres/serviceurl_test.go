package postgres

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

func TestServiceURLWithoutPassword(t *testing.T) {
	t.Parallel()
	// The addresses have no server: without a password no connection is needed.
	tests := []struct{ name, admin, database, want string }{
		{"same database", "postgres://admin@db.invalid:5433/app?sslmode=disable", "", "postgres://reader@db.invalid:5433/app?sslmode=disable"},
		{"other database", "postgresql://admin@db.invalid/app", "test", "postgresql://reader@db.invalid/test"},
		{"named in parameters", "postgres://db.invalid/?user=admin&dbname=app&sslmode=require", "", "postgres://reader@db.invalid/app?sslmode=require"},
		{"a search_path", "postgres://admin@db.invalid/app?search_path=mine&pool_max_conns=9", "", "postgres://reader@db.invalid/app?pool_max_conns=9"},
		{"parameters lose", "postgres://db.invalid/?user=admin&dbname=app", "test", "postgres://reader@db.invalid/test"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ServiceURL(t.Context(), tt.admin, tt.database, "reader")
			if err != nil || got != tt.want {
				t.Errorf("ServiceURL = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestServiceURLRefuses(t *testing.T) {
	t.Parallel()
	for _, admin := range []string{"host=localhost password=secret", "", "postgres://admin:secret@host:port/app", "postgres://admin:sec%ret@host/app"} {
		_, err := ServiceURL(t.Context(), admin, "", "reader")
		if err == nil || !strings.Contains(err.Error(), "administrator's database URL") {
			t.Errorf("ServiceURL(%q) = %v, want an error that names the URL", admin, err)
		}
		if err != nil && strings.Contains(err.Error(), "sec") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestServiceURLWithPassword(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	admin := requirePassword(t, s)

	got := concurrently(t, 16, func() (string, error) { return ServiceURL(t.Context(), admin, "postgres", "reader") })
	for _, url := range got {
		if url != got[0] {
			t.Fatalf("two runs disagree: %s and %s", url, got[0])
		}
	}
	if user := ask(t, connect(t, got[0]), "SELECT current_user"); user != "reader" {
		t.Errorf("connected as %s, want reader", user)
	}
	if strings.Contains(got[0], "admin-secret") {
		t.Errorf("%s shows the administrator's password", got[0])
	}
	if _, err := ServiceURL(t.Context(), admin, "", "nobody_here"); err == nil || !strings.Contains(err.Error(), "nobody_here") {
		t.Errorf("missing role: %v, want an error that names it", err)
	}
}

// requirePassword gives the server a role reader, and an administrator with a
// password that every login needs.
func requirePassword(tb testing.TB, s *Server) string {
	tb.Helper()
	conn := connect(tb, s.URL())
	for _, sql := range []string{
		`CREATE ROLE reader LOGIN`,
		`ALTER ROLE postgres PASSWORD 'admin-secret'`,
		`COPY (SELECT 'host all all 127.0.0.1/32 scram-sha-256') TO '` + s.dir.data() + `/pg_hba.conf'`,
		`SELECT pg_reload_conf()`,
	} {
		if _, err := conn.Exec(tb.Context(), sql); err != nil {
			tb.Fatalf("%s: %v", sql, err)
		}
	}
	u, err := url.Parse(s.URL())
	if err != nil {
		tb.Fatal(err)
	}
	u.User = url.UserPassword("postgres", "admin-secret")
	return u.String()
}

func concurrently(tb testing.TB, n int, f func() (string, error)) []string {
	tb.Helper()
	results := make([]string, n)
	var g errgroup.Group
	for i := range n {
		g.Go(func() (err error) {
			results[i], err = f()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		tb.Fatal(err)
	}
	return results
}
