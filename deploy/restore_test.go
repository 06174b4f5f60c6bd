package deploy_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/migrations"
)

func TestMain(m *testing.M) { pairtest.Main(m) }

// restoreBlock finds the commands of the README that this file runs.
var restoreBlock = regexp.MustCompile("(?s)<!-- tested: deploy/restore_test.go (\\w+) -->\n *```sh\n(.*?)```")

// A restoration is a damaged read model, a copy of it from before the damage, and a
// person who runs the README's commands.
type restoration struct {
	copy, here *pairtest.DB
	// copyURL and hereURL connect as the schema's owner.
	copyURL, hereURL string
	dir              string // the person's: the dump is left there
	commands         map[string]string
}

func newRestoration(t *testing.T) *restoration {
	t.Helper()
	r := &restoration{copy: pairtest.New(t), here: pairtest.New(t), dir: t.TempDir(), commands: map[string]string{}}
	r.copyURL, r.hereURL = roles(t, r.copy.Admin)[migrations.Catalog], roles(t, r.here.Admin)[migrations.Catalog]
	text, err := os.ReadFile("terraform/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range restoreBlock.FindAllStringSubmatch(string(text), -1) {
		r.commands[found[1]] = found[2]
	}
	const fill = `
		INSERT INTO catalog.video_projection (video_id, title, version, updated_at)
		SELECT gen_random_uuid(), repeat(md5(n::text), 8), 1 + n %% 7, now() FROM generate_series(1, %d) n`
	execute(t, r.copyURL, fmt.Sprintf(fill, 20_000))
	// Since then a migration has added a table, which the copy does not know.
	execute(t, r.hereURL, fmt.Sprintf(fill, 300), `
		INSERT INTO catalog.operator_actions (action, aggregate_type, aggregate_id, actor, why, at) VALUES
		  ('erase', 'user', '`+erasedUser+`', 'ada', 'request 1', '2026-11-20 09:00Z'),
		  ('erase', 'user', '`+erasedBefore+`', 'ada', 'request 2', '2026-11-20 07:00Z')`, `CREATE TABLE catalog.added_later (id int REFERENCES catalog.operator_actions (id))`)
	return r
}

func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, statement := range statements {
		pgtest.Exec(t, conn, statement)
	}
}

// These users were erased after the moment of the copy, and before it.
const erasedUser, erasedBefore = "018f2e6b-0000-7000-8000-000000000001", "018f2e6b-0000-7000-8000-000000000002"

// types runs a block of the README.
func (r *restoration) types(t *testing.T, block string) error {
	t.Helper()
	_, err := r.says(t, block)
	return err
}

// says runs a block of the README, and returns its output.
func (r *restoration) says(t *testing.T, block string) (string, error) {
	t.Helper()
	script, found := r.commands[block]
	if !found {
		t.Fatalf("the README has no block %q", block)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(r.dir, "bin")+":"+pgtest.Clients(t, r.here.Admin)+":"+os.Getenv("PATH"), "SCHEMA=catalog", "COPY="+r.copyURL, "HERE="+r.hereURL,
		"MOMENT=2026-11-20 08:00Z")
	output, err := cmd.CombinedOutput()
	t.Logf("%s: %v\n%s", block, err, output)
	return string(output), err
}

// state is everything that a restore may change: a line for each table of a schema,
// with a digest of its rows, and for each index, constraint and grant.
func state(t *testing.T, url, schema string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	read := func(sql string, args ...any) []string {
		rows, err := conn.Query(t.Context(), sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	lines := read(`
		SELECT replace(pg_get_indexdef(i.indexrelid), $1 || '.', '') FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = to_regnamespace($1)
		UNION ALL SELECT c.relname || ' ' || conname || ' ' || replace(pg_get_constraintdef(k.oid), $1 || '.', '') FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid WHERE k.connamespace = to_regnamespace($1)
		UNION ALL SELECT concat_ws(' ', relname, relkind, relacl) FROM pg_class WHERE relnamespace = to_regnamespace($1)
		UNION ALL SELECT 'schema ' || coalesce(nspacl::text, '') FROM pg_namespace WHERE oid = to_regnamespace($1)`, schema)
	for _, table := range read(`SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind IN ('r', 'p')`, schema) {
		name := pgx.Identifier{schema, table}.Sanitize()
		lines = append(lines, table+" "+read(`SELECT count(*) || ' ' || coalesce(sum(hashtextextended(r::text, 0)), 0) FROM ` + name + ` r`)[0])
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// restored checks that the schema is the copy's, and that the replaced schema is kept
// until a person has checked the result.
func (r *restoration) restored(t *testing.T, before string) {
	t.Helper()
	if got := state(t, r.here.Admin, "catalog"); got != state(t, r.copy.Admin, "catalog") {
		t.Errorf("after the restore catalog differs from the copy:\n%s", got)
	}
	if got := state(t, r.here.Admin, "catalog_replaced"); got != before {
		t.Errorf("what was replaced has changed:\n%s\nbefore:\n%s", got, before)
	}
	if erased, err := r.says(t, "erasures"); err != nil || !strings.Contains(erased, erasedUser) || strings.Contains(erased, erasedBefore) {
		t.Errorf("erasures since the copy: %v\n%s", err, erased)
	}
	if err := r.types(t, "done"); err != nil {
		t.Fatal(err)
	}
	if left := state(t, r.here.Admin, "catalog_replaced"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestRestore runs the README's commands for the restore of catalog, on a schema that
// has one table more than the copy.
func TestRestore(t *testing.T) {
	t.Parallel()
	r := newRestoration(t)
	before := state(t, r.here.Admin, "catalog")
	if err := r.types(t, "restore"); err != nil {
		t.Fatal(err)
	}
	r.restored(t, before)
}

// TestRestoreIsAllOrNothing interrupts the restore at three points. Each time only the
// name of the old schema has changed. One command changes it back, and then the restore
// can be run again.
func TestRestoreIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]struct {
		// cause makes the restore fail at the point, and fix removes the cause.
		cause, fix func(t *testing.T, r *restoration)
		// renamed: the old schema has its other name at that point.
		renamed bool
	}{
		"the dump ends half-way":     {cause: cutDump("exit 1"), fix: whole},
		"a dump that is half a file": {cause: cutDump("exit 0"), fix: whole, renamed: true},
		"the connection ends between rows and indexes": {cause: loseConnection, fix: func(t *testing.T, r *restoration) {
			t.Helper()
			execute(t, r.here.Admin, `DROP EVENT TRIGGER cut`)
		}, renamed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestoration(t)
			before := state(t, r.here.Admin, "catalog")
			point.cause(t, r)
			if err := r.types(t, "restore"); err == nil {
				t.Error("the restore ended well")
			}
			at := "catalog"
			if point.renamed {
				at = "catalog_replaced"
				if got := state(t, r.here.Admin, "catalog"); got != "" {
					t.Errorf("a part was restored:\n%s", got)
				}
			}
			if got := state(t, r.here.Admin, at); got != before {
				t.Errorf("%s has changed:\n%s\nbefore:\n%s", at, got, before)
			}
			if point.renamed {
				if err := r.types(t, "undo"); err != nil {
					t.Fatal(err)
				}
			}
			point.fix(t, r)
			if err := r.types(t, "restore"); err != nil {
				t.Fatal(err)
			}
			r.restored(t, before)
		})
	}
}

// cutDump has pg_dump leave half of its file, in the middle of the projection's rows.
func cutDump(end string) func(*testing.T, *restoration) {
	return func(t *testing.T, r *restoration) {
		t.Helper()
		bin := filepath.Join(r.dir, "bin")
		if err := os.Mkdir(bin, 0o700); err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/bash\nset -e\n" + filepath.Join(pgtest.Clients(t, r.here.Admin), "pg_dump") + ` "$@"
for argument; do case $argument in --file=*) dump=${argument#*=} ;; esac; done
truncate --size=$(($(stat --format=%s "$dump") / 2)) "$dump"
` + end + "\n"
		if err := os.WriteFile(filepath.Join(bin, "pg_dump"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func whole(t *testing.T, r *restoration) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(r.dir, "bin")); err != nil {
		t.Fatal(err)
	}
}

// loseConnection ends the restore's session after its rows are written, while its first
// index is being made.
func loseConnection(t *testing.T, r *restoration) {
	t.Helper()
	execute(t, r.here.Admin, `
		CREATE FUNCTION public.cut() RETURNS event_trigger LANGUAGE plpgsql AS $$
		BEGIN
		  PERFORM pg_terminate_backend(pg_backend_pid());
		END $$`,
		`CREATE EVENT TRIGGER cut ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION public.cut()`)
}
