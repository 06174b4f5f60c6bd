package rebuild_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/pkg/eventing/rebuild"
)

// A read model that is wrong in every way becomes its owner's again. The table of before is
// kept, with its rows, until the rebuild is finished; nothing else is left then.
func TestRebuild(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 350)
	objects := func() []string {
		return ask[string](t, f, `
			SELECT concat(relkind, ' ', relname) FROM pg_class WHERE relnamespace = 'app'::regnamespace UNION ALL
			SELECT proname FROM pg_proc WHERE pronamespace = 'app'::regnamespace UNION ALL
			SELECT concat(tgname, ' of ', tgrelid::regclass) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1`)
	}
	before := objects()
	f.exec(t, `UPDATE one SET body = 'wrong' WHERE version = 1`)
	f.exec(t, `DELETE FROM two WHERE version = 2`)
	f.exec(t, `UPDATE two SET version = 1, body = 'old' WHERE version = 3`)
	f.exec(t, `UPDATE one SET version = version + 10, body = 'ahead' WHERE version = 4`)
	f.exec(t, `INSERT INTO one (a, body, version, updated_at) VALUES ($1, 'extra', 7, now() - interval '1 h')`, newID())
	if r := f.run(t); r.Filled != 700 || r.Repaired != 1 || r.RepairedAfter != 70 {
		t.Errorf("%+v", r)
	}
	f.phase(t, rebuild.Done)
	extra := ask[string](t, f, `DELETE FROM one WHERE version = 7 AND deleted_at IS NOT NULL RETURNING a::text`)
	if len(extra) != 1 {
		t.Error("the row that the owner does not know is no tombstone")
	}
	f.same(t, "one", "two")
	if n := ask[int64](t, f, `SELECT count(*) FROM one_shadow WHERE body = 'wrong'`)[0]; n != 70 {
		t.Errorf("%d rows of before are kept, want 70", n)
	}
	if err := f.Finish(t.Context(), ada, false); err != nil {
		t.Fatal(err)
	}
	f.phase(t, rebuild.None)
	if diff := cmp.Diff(before, objects()); diff != "" {
		t.Errorf("after a rebuild (-want +got):\n%s", diff)
	}
	want := []string{"rebuild", "rebuild finish", "rebuild switch"}
	if got := ask[string](t, f, `SELECT DISTINCT action FROM operator_actions WHERE actor = 'ada' ORDER BY 1`); !slices.Equal(got, want) {
		t.Errorf("audit %q, want %q", got, want)
	}
}

// The service's rights, the options and the settings of the table are those of before. So are
// the names of its indexes, each for the same columns. The role that rebuilds has no rights but
// those of the owner.
func TestANewTableIsLikeTheOldOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	f.exec(t, `
		GRANT SELECT ON two TO app_service WITH GRANT OPTION;
		CREATE POLICY everything ON one USING (true) WITH CHECK (version > 0);
		CREATE POLICY named ON one AS RESTRICTIVE FOR SELECT TO app_service USING (coalesce((SELECT current_setting('x.y', true)), '') = '');
		ALTER TABLE one ENABLE ROW LEVEL SECURITY;
		ALTER TABLE one FORCE ROW LEVEL SECURITY;
		ALTER VIEW spelled SET (security_barrier = true);
		COMMENT ON TABLE one IS 'It''s a table.';
		COMMENT ON COLUMN one.body IS 'A text.';
		COMMENT ON INDEX one_by_body IS 'An index.';
		COMMENT ON CONSTRAINT sense ON one IS 'A rule.';
		COMMENT ON TRIGGER count_letters ON two IS 'A trigger.';
		COMMENT ON POLICY named ON one IS 'A policy.';
		COMMENT ON VIEW spelled IS 'A view.';
		ALTER TABLE one ALTER COLUMN body SET (n_distinct = 7, n_distinct_inherited = 8), SET (toast.autovacuum_enabled = false, toast.vacuum_truncate = false)`)
	f.asOwner(t)
	f.exec(t, `ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT SELECT, DELETE ON TABLES TO app_service, PUBLIC`) // for tables made from now on
	describe := func() []string {
		return ask[string](t, f, `
			SELECT concat(relname, relowner::regrole, relacl, reloptions, relrowsecurity, relforcerowsecurity) FROM pg_class WHERE oid IN ('one'::regclass, 'two'::regclass, 'spelled'::regclass) UNION ALL
			SELECT concat_ws(' ', attname, attoptions) FROM pg_attribute WHERE attrelid IN ('one'::regclass, 'two'::regclass) AND attnum > 0 UNION ALL
			SELECT concat(c.relname, t.reloptions) FROM pg_class AS c JOIN pg_class AS t ON t.oid = c.reltoastrelid WHERE c.oid IN ('one'::regclass, 'two'::regclass) UNION ALL
			SELECT indexdef FROM pg_indexes WHERE tablename IN ('one', 'two') UNION ALL
			SELECT concat_ws(' ', policyname, permissive, roles, cmd, qual, with_check) FROM pg_policies WHERE tablename IN ('one', 'two') UNION ALL
			SELECT concat(conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE conrelid IN ('one'::regclass, 'two'::regclass) UNION ALL
			SELECT concat_ws(' ', type, identity, description) FROM pg_description, pg_identify_object(classoid, objoid, objsubid)
			 WHERE schema = 'app' AND identity ~ '^app\.(one|two|spelled)\M' UNION ALL
			SELECT concat_ws(' ', type, identity, description) FROM pg_description, pg_identify_object(classoid, objoid, objsubid)
			 WHERE schema IS NULL AND identity ~ ' on app\.(one|two)$' UNION ALL
			SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal AND tgname NOT LIKE 'mirror%' ORDER BY 1`)
	}
	before, table := describe(), ask[int64](t, f, `SELECT 'two'::regclass::oid::bigint`)[0]
	f.run(t)
	if diff := cmp.Diff(before, describe()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if ask[int64](t, f, `SELECT 'two'::regclass::oid::bigint`)[0] == table {
		t.Error("it is the old table")
	}
	f.serve(t, `INSERT INTO one (a, version, updated_at) VALUES ($1, 1, now())`, newID())
	f.serve(t, `UPDATE two SET version = version + 1`)
	if err := f.Rollback(t.Context(), ada); err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(t.Context(), ada, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, describe()); diff != "" {
		t.Errorf("after a rollback (-want +got):\n%s", diff)
	}
}

// The names of roles may need quotes, as those of the users that a managed server takes from the accounts
// of a cloud. An administrator rebuilds tables of such an owner, and a reader of such a name keeps its rights.
func TestRolesWhoseNamesNeedQuotes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	for _, role := range []string{`"rebuild-Owner"`, `"analyst@Example.com"`} {
		f.exec(t, `DO $$ BEGIN CREATE ROLE `+role+`; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$`)
	}
	f.exec(t, `
		ALTER TABLE two OWNER TO "rebuild-Owner";
		GRANT SELECT ON two TO "analyst@Example.com" WITH GRANT OPTION;
		CREATE POLICY everything ON two USING (true);
		CREATE POLICY named ON two AS RESTRICTIVE TO "analyst@Example.com" USING (version > 0);
		ALTER TABLE two ENABLE ROW LEVEL SECURITY`)
	describe := func() []string {
		return ask[string](t, f, `
			SELECT concat(relowner::regrole, relacl) FROM pg_class WHERE oid = 'two'::regclass UNION ALL
			SELECT concat_ws(' ', policyname, permissive, roles) FROM pg_policies WHERE tablename = 'two' ORDER BY 1`)
	}
	before := describe()
	f.run(t)
	if diff := cmp.Diff(before, describe()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := f.Rollback(t.Context(), ada); err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(t.Context(), ada, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, describe()); diff != "" {
		t.Errorf("after a rollback (-want +got):\n%s", diff)
	}
}

// After a rollback the table of before is served, with all that has happened since; a
// rollback may be repeated.
func TestRollback(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50)
	f.exec(t, `UPDATE one SET body = 'as it was'`)
	f.exec(t, `DELETE FROM two WHERE version = 2`)
	if err := f.Rollback(t.Context(), ada); !errors.Is(err, rebuild.ErrPhase) {
		t.Errorf("without a rebuild: %v", err)
	}
	f.run(t)
	f.serve(t, `UPDATE two SET body = 'since then', version = version + 1 WHERE version = 5`)
	for range 2 {
		f.exec(t, `UPDATE letters SET n = n + 1`) // as a process that died in a rollback may have left it
		if err := f.Rollback(t.Context(), ada); err != nil {
			t.Fatal(err)
		}
		f.phase(t, rebuild.RolledBack)
	}
	if n := ask[int64](t, f, `SELECT count(*) FROM one WHERE body = 'as it was'`)[0]; n != 50 {
		t.Errorf("%d rows are as before, want 50", n)
	}
	if n := ask[int64](t, f, `SELECT count(*) FROM two WHERE body = 'since then'`)[0]; n != 10 {
		t.Errorf("%d rows are as written since, want 10", n)
	}
	// Those rows would be missing, although readers have seen them.
	if n := ask[int64](t, f, `SELECT count(*) FROM two WHERE version = 2`)[0]; n != 10 {
		t.Errorf("%d rows that only the new table had, want 10", n)
	}
	if n := ask[int64](t, f, `SELECT (SELECT sum(length(body)) FROM two) - (SELECT n FROM letters)`)[0]; n != 0 {
		t.Errorf("%d letters are not counted", n)
	}
	if _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); !errors.Is(err, rebuild.ErrPhase) {
		t.Errorf("a rebuild after a rollback: %v", err)
	}
	if err := f.Finish(t.Context(), ada, false); err != nil {
		t.Fatal(err)
	}
	f.run(t)
	f.same(t, "one", "two")
}

// A migration that changes the served table is noticed before the exchange, in either
// direction, and nothing is exchanged. The rebuild can be finished and begun again.
func TestAMigrationInBetween(t *testing.T) {
	t.Parallel()
	for name, migration := range map[string]string{
		"column":     `ALTER TABLE two ADD COLUMN language text NOT NULL DEFAULT ''`,
		"type":       `ALTER TABLE one ALTER COLUMN body TYPE varchar(100)`,
		"index":      `CREATE INDEX two_by_body ON two (body)`,
		"check":      `ALTER TABLE one ADD CONSTRAINT humour CHECK (body <> 'dead')`,
		"right":      `GRANT DELETE ON two TO app_service`,
		"option":     `GRANT SELECT ON two TO app_service WITH GRANT OPTION`,
		"invalid":    `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'one_by_body'::regclass`,
		"collation":  `ALTER TABLE one ALTER COLUMN body TYPE text COLLATE "C"`,
		"statistics": `ALTER TABLE one ALTER COLUMN body SET STATISTICS 500`,
		"distinct":   `ALTER TABLE one ALTER COLUMN body SET (n_distinct = 7)`,
		"toast":      `ALTER TABLE one SET (toast.autovacuum_enabled = false)`,
		"replica":    `ALTER TABLE one REPLICA IDENTITY FULL`,
		"key":        `CREATE TABLE elsewhere (a uuid REFERENCES one)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 10)
			done := false
			f.at = func(step string) {
				if strings.HasPrefix(step, "begin comparing") && !done {
					done = true
					f.exec(t, migration)
				}
			}
			for range 2 {
				if _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); !errors.Is(err, rebuild.ErrShape) {
					t.Fatalf("after %s: %v", migration, err)
				}
			}
			f.phase(t, rebuild.Comparing)
			if err := f.Finish(t.Context(), ada, false); err != nil {
				t.Fatal(err)
			}
			_, err := f.Run(t.Context(), ada, rebuild.Options{}, f)
			if again := name == "key" || name == "invalid"; errors.Is(err, rebuild.ErrShape) != again || !again && err != nil {
				t.Errorf("begun again: %v", err)
			}
		})
	}
	f := newFixture(t, 10)
	f.run(t)
	f.exec(t, `ALTER TABLE one ADD COLUMN language text NOT NULL DEFAULT ''`)
	if err := f.Rollback(t.Context(), ada); !errors.Is(err, rebuild.ErrShape) {
		t.Errorf("rollback after a migration: %v", err)
	}
	f.phase(t, rebuild.Done)
}

// What would stay with the old table, or cannot be made again, is refused before anything is
// made.
func TestWhatAShadowCannotHave(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"key":              `CREATE TABLE elsewhere (a uuid REFERENCES one)`,
		"publication":      `CREATE PUBLICATION changes FOR TABLE one`,
		"another's policy": `CREATE TABLE chosen (a uuid); CREATE POLICY known ON chosen USING (a IN (SELECT a FROM one))`,
		"another's rule":   `CREATE TABLE chosen (a uuid); CREATE RULE known AS ON INSERT TO chosen WHERE new.a IN (SELECT a FROM one) DO INSTEAD NOTHING`,
		"statistics":       `CREATE STATISTICS together ON body, version FROM one`,
		"function":         `CREATE FUNCTION ones() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM one; END`,
		"argument":         `CREATE FUNCTION body_of(one) RETURNS text LANGUAGE sql AS 'SELECT $1.body'`,
		"column":           `CREATE TABLE elsewhere (whole one)`,
		"sequence":         `ALTER TABLE one ADD COLUMN n bigserial`,
		"identity":         `ALTER TABLE one ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY`,
		"invalid":          `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'one_by_body'::regclass`, // of a CREATE INDEX CONCURRENTLY that failed
		"rule":             `CREATE RULE nothing AS ON DELETE TO one DO ALSO NOTHING`,
		"replica":          `ALTER TABLE one ALTER COLUMN last_event_id SET NOT NULL; ALTER TABLE one REPLICA IDENTITY USING INDEX one_by_event`,
		"view": `DO $$ BEGIN CREATE ROLE rebuild_other; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$;
			CREATE SCHEMA other AUTHORIZATION rebuild_other; CREATE VIEW other.ones AS SELECT a FROM one; ALTER VIEW other.ones OWNER TO rebuild_other`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 1)
			f.exec(t, sql)
			if name == "view" {
				f.asOwner(t)
			}
			_, err := f.Run(t.Context(), ada, rebuild.Options{}, f)
			if !errors.Is(err, rebuild.ErrShape) || strings.Contains(err.Error(), "finish") {
				t.Errorf("%v", err)
			}
			f.phase(t, rebuild.None)
		})
	}
}

// A rebuild needs disk space, which the caller has to state.
func TestDisk(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1000)
	need, err := f.Need(t.Context())
	size := ask[int64](t, f, `SELECT pg_total_relation_size('one') + pg_total_relation_size('two')`)[0]
	if err != nil || need.Copy < size || need.Log < 2*size {
		t.Fatalf("%+v, %v for tables of %d bytes", need, err, size)
	}
	for free, want := range map[string]error{"1 kB": rebuild.ErrDisk, "1": rebuild.ErrDisk, "40 GB": nil} {
		if err := f.CheckDisk(t.Context(), need, free); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", free, err, want)
		}
	}
	if err := f.CheckDisk(t.Context(), need, "much"); err == nil || errors.Is(err, rebuild.ErrDisk) {
		t.Errorf("a size that is none: %v", err)
	}
}
