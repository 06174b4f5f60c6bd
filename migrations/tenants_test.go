package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/tenant"
)

// rowsOfTwoTenants has one row of each tenant in each table with tenants.
const rowsOfTwoTenants = `
	INSERT INTO video.videos (video_id, uploader_id, title, version, created_at, updated_at, tenant_id)
	SELECT gen_random_uuid(), gen_random_uuid(), t, 1, now(), now(), t FROM unnest(ARRAY['acme', 'bell']) AS t;
	INSERT INTO video.idempotency_keys (principal, operation, key, request_hash, response, tenant_id)
	SELECT t, '', '', '', '', t FROM unnest(ARRAY['acme', 'bell']) AS t;
	INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
	SELECT gen_random_uuid(), 'video', video_id, '', 1, '', tenant_id FROM video.videos;
	INSERT INTO catalog.video_projection (video_id, uploader_id, title, version, created_at, updated_at, tenant_id)
	SELECT video_id, uploader_id, title, 1, now(), now(), tenant_id FROM video.videos`

// tenantTables are the tables with tenants, and what a request may do with them.
var tenantTables = map[migrations.Service]map[string]string{
	migrations.Video: {
		"videos": "SELECT INSERT UPDATE", "idempotency_keys": "SELECT INSERT UPDATE",
		"engagements": "SELECT INSERT UPDATE",
		"outbox":      "SELECT INSERT",
	},
	migrations.Catalog: {
		"video_projection":                  "SELECT",
		"video_user_engagements_projection": "SELECT",
		"video_counters":                    "SELECT",
	},
}

// TestTheRolesOfRequests is a SQL console as each role that requests run as: what it sees with
// and without a tenant, and what it cannot touch at all. The second time each transaction goes
// through a pooler, on a session that another one has used.
func TestTheRolesOfRequests(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	admin := db.Pool(t, db.Admin)
	for _, rows := range []string{
		rowsOfTwoTenants,
		engagementsOfTwoTenants,
	} {
		pgtest.Exec(t, admin, rows)
	}
	for s, direct := range map[migrations.Service]string{migrations.Video: db.VideoURL, migrations.Catalog: db.CatalogURL} {
		for how, url := range map[string]string{"directly": direct, "pooled": db.Pooled(t, direct)} {
			t.Run(fmt.Sprint(s, " ", how), func(t *testing.T) {
				t.Parallel()
				c := console{db.Pool(t, url), s}
				for table, rights := range tenantTables[s] {
					c.seesOneTenant(t, table)
					c.changesNoOther(t, table, rights)
				}
				c.touchesNothingElse(t, admin)
			})
		}
	}
}

// console runs statements as the role of a service's requests.
type console struct {
	pool    *pgxpool.Pool
	service migrations.Service
}

// as runs one statement in a scope, and undoes it. It returns the number of its rows.
func (c console) as(t *testing.T, scope tenant.Scope, sql string) (rows int64, err error) {
	t.Helper()
	undo := errors.New("undo")
	err = pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		scope.Enter(b)
		b.Queue(sql).Exec(func(tag pgconn.CommandTag) error {
			rows = tag.RowsAffected()
			return nil
		})
		if err := tx.SendBatch(t.Context(), b).Close(); err != nil {
			return err
		}
		return undo
	})
	if errors.Is(err, undo) {
		err = nil
	}
	return rows, err
}

func (c console) seesOneTenant(t *testing.T, table string) {
	t.Helper()
	role := c.service.RequestRole()
	for name, tc := range map[string]struct {
		scope tenant.Scope
		want  int64
	}{
		"acme": {tenant.One(role, "acme"), 1}, "a tenant without rows": {tenant.One(role, "nobody"), 0},
		"an empty tenant": {tenant.One(role, ""), 0}, "all, for a loop": {tenant.All(), 2},
	} {
		if n, err := c.as(t, tc.scope, "SELECT FROM "+table); err != nil || n != tc.want {
			t.Errorf("%s: %s sees %d rows, %v; want %d", table, name, n, err, tc.want)
		}
	}
	// The role alone, as after a SET ROLE, and no tenant.
	var n int64
	err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n)
	})
	if err != nil || n != 0 {
		t.Errorf("%s: without a tenant %d rows, %v; want none", table, n, err)
	}
	if _, err := c.as(t, tenant.Scope{}, "SELECT FROM "+table); err == nil {
		t.Errorf("%s: the zero scope reads", table)
	}
}

// changesNoOther expects that an update reaches one row, that a row of another tenant cannot be
// written, and that other rights are refused.
func (c console) changesNoOther(t *testing.T, table, rights string) {
	t.Helper()
	acme := tenant.One(c.service.RequestRole(), "acme")
	for right, sql := range map[string]string{
		"UPDATE":   "UPDATE " + table + " SET tenant_id = 'acme'",
		"INSERT":   "INSERT INTO " + table + " SELECT * FROM " + table + " WHERE false", //nolint:unqueryvet // any columns
		"DELETE":   "DELETE FROM " + table,
		"TRUNCATE": "TRUNCATE " + table,
	} {
		n, err := c.as(t, acme, sql)
		if allowed := strings.Contains(rights, right); allowed != (err == nil) || allowed && right == "UPDATE" && n != 1 {
			t.Errorf("%s %s: %d rows, %v", right, table, n, err)
		}
		if err != nil && code(err) != "42501" {
			t.Errorf("%s %s: %v, want it denied", right, table, err)
		}
	}
	if table == "outbox" {
		const forged = `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
			VALUES (gen_random_uuid(), 'video', 'x', '', 1, '', '%s')`
		if _, err := c.as(t, acme, fmt.Sprintf(forged, "bell")); code(err) != "42501" {
			t.Errorf("an event of another tenant: %v, want it denied", err)
		}
		if _, err := c.as(t, acme, fmt.Sprintf(forged, "acme")); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(rights, "UPDATE") {
		return
	}
	if _, err := c.as(t, acme, "UPDATE "+table+" SET tenant_id = 'bell'"); code(err) != "42501" {
		t.Errorf("%s: a row given to another tenant: %v, want it denied", table, err)
	}
}

// touchesNothingElse tries each relation of the database.
func (c console) touchesNothingElse(t *testing.T, admin *pgxpool.Pool) {
	t.Helper()
	rows, err := admin.Query(t.Context(), `
		SELECT n.nspname || '.' || c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		 WHERE n.nspname IN ('video', 'catalog') AND c.relkind IN ('r', 'v', 'm', 'S', 'p')`)
	if err != nil {
		t.Fatal(err)
	}
	relations, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(relations) < 20 {
		t.Fatalf("%d relations, %v", len(relations), err)
	}
	own := map[string]bool{"video.outbox_epochs": c.service == migrations.Video}
	for table := range tenantTables[c.service] {
		own[string(c.service)+"."+table] = true
	}
	for _, relation := range relations {
		_, err := c.as(t, tenant.One(c.service.RequestRole(), "acme"), "SELECT FROM "+relation)
		if own[relation] != (err == nil) || err != nil && code(err) != "42501" {
			t.Errorf("SELECT FROM %s: %v", relation, err)
		}
	}
}

func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
