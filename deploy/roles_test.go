package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/migrations"
)

var both = []migrations.Service{migrations.Video, migrations.Catalog}

// oneAdministrator is held while roles.sql runs: roles belong to the whole server, which
// the parallel tests share, and two sessions that create one role at once collide.
var oneAdministrator sync.Mutex

// roles runs roles.sql in a database, and then both migrations, each as its schema's
// owner. It returns the owners' URLs.
func roles(t *testing.T, admin string) map[migrations.Service]string {
	t.Helper()
	script, err := os.ReadFile("terraform/roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	owners := map[migrations.Service]string{}
	for range 2 { // it can be run again
		administer(t, admin, string(script))
	}
	extended(t, admin)
	for _, s := range both {
		owner, err := postgres.ServiceURL(t.Context(), admin, "", string(s)+"_owner")
		if err != nil {
			t.Fatal(err)
		}
		if err := migrations.Up(t.Context(), owner, s, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		owners[s] = owner
	}
	return owners
}

func administer(t *testing.T, admin, script string) {
	t.Helper()
	oneAdministrator.Lock()
	defer oneAdministrator.Unlock()
	execute(t, admin, script)
}

func denied(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), statement)
	if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "42501" {
		t.Errorf("%s: %v, want it denied", statement, err)
	}
}

// extended checks that the script has installed the extension of the index of titles, if the server
// has the extension. In Cloud SQL the owner, which runs the migrations, may install none.
// https://cloud.google.com/sql/docs/postgres/extensions
func extended(t *testing.T, admin string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var missing, owned bool
	if err := conn.QueryRow(t.Context(), `
		SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_trgm' AND installed_version IS NULL),
		       EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm' AND pg_get_userbyid(extowner) = 'catalog_owner')`,
	).Scan(&missing, &owned); err != nil || missing || owned {
		t.Errorf("pg_trgm is missing: %t, of catalog's owner: %t, %v; want the administrator's", missing, owned, err)
	}
}

// owned checks that everything in both schemas belongs to the schema's owner, that
// neither owner can touch the other's schema, and that the services are ready.
func owned(t *testing.T, admin string, owners map[migrations.Service]string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for i, s := range both {
		other := both[1-i]
		rows, err := pool.Query(t.Context(), `
			SELECT relname || ' is of ' || pg_get_userbyid(relowner) FROM pg_class
			 WHERE relnamespace = to_regnamespace($1) AND pg_get_userbyid(relowner) <> $1 || '_owner'
			UNION ALL
			SELECT 'the schema is of ' || pg_get_userbyid(nspowner) FROM pg_namespace
			 WHERE nspname = $1 AND pg_get_userbyid(nspowner) <> $1 || '_owner'`, string(s))
		if err != nil {
			t.Fatal(err)
		}
		if wrong, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(wrong) > 0 {
			t.Errorf("%s: %v, %v", s, wrong, err)
		}
		for _, statement := range []string{
			"SELECT FROM %s.goose_db_version", "DROP TABLE %s.goose_db_version", "CREATE TABLE %s.mine ()", "DROP SCHEMA %s CASCADE",
			"ALTER SCHEMA %s RENAME TO mine", "GRANT USAGE ON SCHEMA %s TO PUBLIC", "SELECT FROM %s.operator_actions",
		} {
			denied(t, owners[s], fmt.Sprintf(statement, other))
		}
		execute(t, owners[s], fmt.Sprintf(`ALTER ROLE %s SET statement_timeout = '15s'`, s.Role())) // as a later migration may
		service, err := postgres.ServiceURL(t.Context(), admin, "", s.Role())
		if err != nil {
			t.Fatal(err)
		}
		own, err := pgxpool.New(t.Context(), service)
		if err != nil {
			t.Fatal(err)
		}
		if err := migrations.Check(t.Context(), own, s); err != nil {
			t.Error(err)
		}
		own.Close()
		denied(t, service, fmt.Sprintf("CREATE TABLE %s.mine ()", s))
	}
}

// TestMigrationsRunAsOwners runs them in a new database, and in one in which an
// administrator has run the migrations before.
func TestMigrationsRunAsOwners(t *testing.T) {
	t.Parallel()
	used := pairtest.New(t).Admin
	config, err := pgx.ParseConfig(used)
	if err != nil {
		t.Fatal(err)
	}
	name := config.Database + "_new"
	execute(t, used, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize())
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), used)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), `DROP DATABASE `+pgx.Identifier{name}.Sanitize()+` WITH (FORCE)`); err != nil {
			t.Error(err)
		}
	})
	for _, admin := range []string{strings.Replace(used, "/"+config.Database, "/"+name, 1), used} {
		owned(t, admin, roles(t, admin))
	}
}

// TestARotationNamesEachSecret compares the README's rotation of the service's password with the
// secrets that have this password: an instance with the old one in one secret cannot LISTEN.
func TestARotationNamesEachSecret(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("terraform/modules/service/service.tf")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("terraform/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rotation, _ := strings.Cut(string(readme), "**Rotate a password.**")
	rotation, _, _ = strings.Cut(rotation, "\n\n")
	secrets := regexp.MustCompile(`"\$\{var\.name\}-[a-z-]*database-url"`).FindAllString(string(module), -1)
	if len(secrets) < 3 || rotation == "" {
		t.Fatalf("found the secrets %v and %q", secrets, rotation)
	}
	for _, name := range secrets {
		name = strings.Replace(strings.Trim(name, `"`), "${var.name}", "video", 1)
		if !strings.Contains(rotation, "`"+name+"`") {
			t.Errorf("the rotation does not name %s", name)
		}
	}
}
