package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/migrate"
)

// In a database that does not store UTF-8, nothing is created, and the error names the encoding.
func TestADatabaseOfAnotherEncodingIsRefused(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		name := "encoding_" + uuid.NewString()[:8]
		create := fmt.Sprintf(`CREATE DATABASE %s ENCODING '%s' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`, name, encoding)
		pgtest.Exec(t, admin, create)
		t.Cleanup(func() {
			conn, err := pgx.Connect(context.Background(), pg.Admin)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			if _, err := conn.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
				t.Error(err)
			}
		})
		u, err := url.Parse(pg.Admin)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		err = orders.Up(t.Context(), u.String(), slog.New(slog.DiscardHandler))
		if !errors.Is(err, migrate.ErrSettings) || !strings.Contains(err.Error(), "server_encoding is "+encoding+", and must be UTF8") {
			t.Errorf("%s: %v", encoding, err)
		}
		var created bool
		err = pg.Pool(t, u.String()).QueryRow(t.Context(), `SELECT to_regnamespace('orders') IS NOT NULL`).Scan(&created)
		if err != nil || created {
			t.Errorf("%s: the schema is there: %v, %v", encoding, created, err)
		}
	}
}

// A service is unready with settings of its sessions that damage data or make every statement fail.
func TestUnfitSettingsOfSessionsAreNamed(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	for setting, value := range map[string]string{
		"client_encoding": "LATIN1", "session_replication_role": "replica", "row_security": "off",
		"default_transaction_isolation": "repeatable read",
	} {
		config := pgtest.Settings(t, pg.Admin)
		config.ConnConfig.RuntimeParams["search_path"] = pgtest.Library.Name
		config.ConnConfig.RuntimeParams[setting] = value
		pool := pgtest.Open(t, config)
		err := pgtest.Library.Check(t.Context(), pool)
		if !errors.Is(err, migrate.ErrSettings) || !strings.Contains(err.Error(), setting+" is "+value) {
			t.Errorf("%s = %s: %v", setting, value, err)
		}
	}
}

// Before the first migration, an administrator may have created the service's role and made a setting for
// it. The role gets the settings that it lacks, and keeps its own.
func TestARoleWithSettingsOfItsOwn(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	name := "settings_" + uuid.NewString()[:8] // roles belong to the server, which tests share
	for _, sql := range []string{`CREATE ROLE %s LOGIN`, `ALTER ROLE %s SET statement_timeout = '7s'`} {
		pgtest.Exec(t, admin, fmt.Sprintf(sql, name))
	}
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), pg.Admin)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %s; DROP ROLE %[1]s`, name)); err != nil {
			t.Error(err)
		}
	})
	schema := orders
	schema.Name, schema.Role = name, name
	schema.Own = settings
	if err := schema.Up(t.Context(), pg.Admin, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	db := pg.Pool(t, pg.As(t, name))
	if err := schema.Check(t.Context(), db); err != nil {
		t.Error(err)
	}
	for setting, want := range map[string]string{
		"search_path": name, "statement_timeout": "7s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "15s",
		"synchronous_commit": "on", "jit": "off", "max_parallel_workers_per_gather": "0", "bytea_output": "hex", "IntervalStyle": "postgres", "array_nulls": "on",
	} {
		var got string
		if err := db.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", setting, got, err, want)
		}
	}
}

// With these settings, too, Postgres converts no text and calls the triggers.
func TestSettingsOfTheSameEffectAreFit(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	for _, setting := range []string{"client_encoding=UNICODE", "client_encoding=SQL_ASCII", "session_replication_role=local"} {
		admin := pg.Admin + "&search_path=" + pgtest.Library.Name + "&" + setting
		if err := pgtest.Library.Check(t.Context(), pg.Pool(t, admin)); err != nil {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
