package migrations_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/migrations"
)

const tablesPage = "../docs/tables.md"

var update = flag.Bool("update", false, "write docs/tables.md")

// TestGenerated compares docs/tables.md with the tables that the migrations make; with -update it writes the page.
func TestGenerated(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	c := catalogOf{t, db.Pool(t, db.Admin)}
	var page strings.Builder
	page.WriteString(tablesHead)
	services := []migrations.Service{migrations.Video, migrations.Catalog}
	page.WriteString("\n| table or view | | how many rows, and who deletes them |\n| --- | --- | --- |\n")
	for _, s := range services {
		for _, r := range c.relations(s) {
			first, rest, _ := strings.Cut(r.Comment, ". ")
			fmt.Fprintf(&page, "| [`%s`](#%s) | %s | %s |\n", r.name(), r.anchor(), strings.TrimSuffix(first, "."), rows(rest))
		}
	}
	written := map[string]relation{}
	for _, s := range services {
		fmt.Fprintf(&page, "\n## %s\n", s)
		for _, r := range c.relations(s) {
			if same, ok := written[r.Name]; ok && r.Comment == same.Comment {
				fmt.Fprintf(&page, "\n<a id=\"%s\"></a>\n\n### %s\n\nAs [%s](#%s).\n", r.anchor(), r.name(), same.name(), same.anchor())
				continue
			}
			written[r.Name] = r
			c.write(&page, r)
		}
		page.WriteString("\n### Functions of " + string(s) + "\n\n")
		for _, f := range c.functions(s) {
			page.WriteString("- `" + f.Name + "`: " + f.Comment + "\n")
		}
	}
	if *update {
		if err := os.WriteFile(tablesPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(tablesPage); err != nil || string(is) != page.String() {
		t.Errorf("docs/tables.md does not follow from the migrations (%v); `make generate` writes it", err)
	}
}

// Each table, view, column, index and function of a migration has a COMMENT. A view's columns, and the index of a constraint, have the
// meaning of those that they are made of.
func TestEverythingHasAComment(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	c := catalogOf{t, db.Pool(t, db.Admin)}
	for _, s := range []migrations.Service{migrations.Video, migrations.Catalog} {
		for _, missing := range c.uncommented(s) {
			t.Errorf("a migration has to say COMMENT ON %s IS '…'", missing)
		}
	}
}

// ofRows matches the sentences of a table's comment, behind its first one, about the number of rows and their deletion.
var ofRows = regexp.MustCompile(`\b(?:[Dd]elete[sd]?|stays?|[Uu]p to|[Oo]ne row)\b`)

// rows returns the sentences of comment that ofRows matches.
func rows(comment string) string {
	var found []string
	for sentence := range strings.SplitSeq(strings.TrimSuffix(comment, "."), ". ") {
		if ofRows.MatchString(sentence) {
			found = append(found, sentence+".")
		}
	}
	return strings.Join(found, " ")
}

const tablesHead = `# Tables

The tables of both services after all migrations. This page is generated from a migrated database and the
comments in it, which psql shows, too (` + "`\\d+ video.outbox`" + `); ` + "`make generate`" + ` writes the page, and ` + "`make verify`" + `
compares it. A column is NOT NULL unless its type says otherwise.

The tables of the library begin with ` + "`outbox`" + `, or are ` + "`inbox`" + `, ` + "`operator_actions`" + ` and ` + "`migration_files`" + `
([migrations](../pkg/eventing/migrate)), the others are the service's ([migrations](../migrations)). Three kinds are not
here: the numbers of the applied migrations (` + "`goose_db_version`" + `), the index for searches by title, which
needs an extension (` + "`search.go`" + ` in [migrations](../migrations)), and the state and copies of a rebuild, which
exist while it runs ([` + "`rebuild`" + `](../pkg/eventing/rebuild/doc.go)).
`

// catalogOf reads the system catalog of a database. All lists are in the order of creation, which a fork's
// names do not change.
type catalogOf struct {
	t  *testing.T
	db *pgxpool.Pool
}

type relation struct {
	OID                  uint32
	Schema               string
	Name, Kind           string
	Comment, Options     string
	Privileges, Security string
}

func (r relation) name() string { return r.Schema + "." + r.Name }

// anchor names the place of the page that has the relation. A fork gives it its own words, as the names.
func (r relation) anchor() string { return r.Schema + "-" + r.Name }

type column struct{ Name, Type, Default, Comment string }

type described struct{ Name, Comment string }

func (c catalogOf) relations(s migrations.Service) []relation {
	return collect[relation](c, `
		SELECT c.oid, $1, c.relname::text, c.relkind::text, coalesce(obj_description(c.oid, 'pg_class'), ''),
		       coalesce(array_to_string(c.reloptions, ', '), ''),
		       coalesce((SELECT string_agg(format('%s: %s', grantee, rights), '; ' ORDER BY login DESC)
		          FROM (SELECT r.rolname AS grantee, r.rolcanlogin AS login, string_agg(a.privilege_type, ', '
		                  ORDER BY array_position(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'], a.privilege_type)) AS rights
		                  FROM aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
		                 WHERE a.grantee <> c.relowner GROUP BY 1, 2) g), ''),
		       coalesce((SELECT string_agg(format('%s: %s', r.rolname, coalesce('rows with ' || nullif(pg_get_expr(p.polqual, c.oid), 'true'), 'all rows')),
		                  '; ' ORDER BY p.oid)
		          FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles) WHERE p.polrelid = c.oid AND r.oid <> c.relowner)
		         || CASE WHEN c.relforcerowsecurity THEN '; forced, with a policy of all rows for the owner' ELSE '' END, '')
		  FROM pg_class c
		 WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v') AND c.relname <> 'goose_db_version'
		 ORDER BY c.relkind <> 'v' DESC, c.oid`, string(s))
}

func (c catalogOf) columns(r relation) []column {
	return collect[column](c, `
		SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull OR $2 THEN '' ELSE ' NULL' END,
		       CASE a.attidentity WHEN '' THEN coalesce(pg_get_expr(d.adbin, d.adrelid), '') ELSE 'identity' END,
		       coalesce(col_description(a.attrelid, a.attnum), '')
		  FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
		 ORDER BY a.attnum`, r.OID, r.Kind == "v")
}

// keys returns the constraints, the indexes and the triggers of a table.
func (c catalogOf) keys(r relation) []described {
	return collect[described](c, `
		SELECT text, comment
		  FROM (SELECT CASE contype WHEN 'p' THEN 1 ELSE 2 END AS kind, oid, pg_get_constraintdef(oid) AS text,
		               coalesce(obj_description(oid, 'pg_constraint'), '') AS comment
		          FROM pg_constraint WHERE conrelid = $1 AND contype IN ('p', 'u', 'c', 'f', 'x')
		        UNION ALL
		        SELECT 3, indexrelid, replace(pg_get_indexdef(indexrelid), format(' ON %s USING btree', indrelid::regclass), ''),
		               coalesce(obj_description(indexrelid, 'pg_class'), '')
		          FROM pg_index JOIN pg_class i ON i.oid = indexrelid
		         WHERE indrelid = $1 AND indexrelid <> coalesce(to_regclass($2), 0)
		           AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
		        UNION ALL
		        SELECT 4, oid, pg_get_triggerdef(oid, true), coalesce(obj_description(oid, 'pg_trigger'), '')
		          FROM pg_trigger WHERE tgrelid = $1 AND NOT tgisinternal) AS k
		 ORDER BY kind, oid`, r.OID, migrations.SearchIndexName)
}

// functions returns the functions of a schema, without those of an extension.
func (c catalogOf) functions(s migrations.Service) []described {
	return collect[described](c, `
		SELECT format('%s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)), coalesce(obj_description(p.oid, 'pg_proc'), '')
		  FROM pg_proc p
		 WHERE p.pronamespace = $1::regnamespace
		   AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
		 ORDER BY p.oid`, string(s))
}

func collect[T any](c catalogOf, sql string, args ...any) []T {
	c.t.Helper()
	rows, _ := c.db.Query(c.t.Context(), sql, args...)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil || len(all) == 0 {
		c.t.Fatalf("%d rows, %v: %s", len(all), err, sql)
	}
	return all
}

// uncommented returns what has no comment in the schema of a service, as COMMENT ON names it.
func (c catalogOf) uncommented(s migrations.Service) (missing []string) {
	for _, r := range c.relations(s) {
		kind := "TABLE"
		if r.Kind == "v" {
			kind = "VIEW"
		}
		if r.Comment == "" {
			missing = append(missing, kind+" "+r.name())
		}
		for _, col := range c.columns(r) {
			if kind == "TABLE" && col.Comment == "" {
				missing = append(missing, "COLUMN "+r.name()+"."+col.Name)
			}
		}
		if kind == "TABLE" {
			for _, key := range c.keys(r) {
				if name, index := indexName(key.Name); index && key.Comment == "" {
					missing = append(missing, "INDEX "+r.Schema+"."+name)
				}
			}
		}
	}
	for _, f := range c.functions(s) {
		if f.Comment == "" {
			missing = append(missing, "FUNCTION "+string(s)+"."+f.Name)
		}
	}
	return missing
}

// indexName returns the name of the index that SQL creates, and whether it creates an index.
func indexName(sql string) (name string, index bool) {
	_, rest, index := strings.Cut(strings.TrimPrefix(sql, "CREATE UNIQUE"), "INDEX ")
	name, _, _ = strings.Cut(rest, " ")
	return name, index && strings.HasPrefix(sql, "CREATE ")
}

func (c catalogOf) write(page *strings.Builder, r relation) {
	fmt.Fprintf(page, "\n<a id=\"%s\"></a>\n\n### %s\n\n%s\n\n", r.anchor(), r.name(), r.Comment)
	if r.Kind == "v" {
		var names []string
		for _, col := range c.columns(r) {
			names = append(names, "`"+col.Name+"`")
		}
		fmt.Fprintf(page, "A view with %s.\n", strings.Join(names, ", "))
		return
	}
	page.WriteString("| column | type | default | |\n| --- | --- | --- | --- |\n")
	for _, col := range c.columns(r) {
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", col.Name, short(col.Type), cell(quoted(col.Default)), cell(col.Comment))
	}
	page.WriteString("\n")
	for _, key := range c.keys(r) {
		text := "- " + quoted(key.Name)
		if key.Comment != "" {
			text += ": " + key.Comment
		}
		page.WriteString(text + "\n")
	}
	for _, part := range []described{{"rights", r.Privileges}, {"row-level security", r.Security}, {"storage", r.Options}} {
		if part.Comment != "" {
			fmt.Fprintf(page, "- %s: %s\n", part.Name, short(part.Comment))
		}
	}
}

// quoted returns SQL as code, or nothing.
func quoted(sql string) string {
	if sql == "" {
		return ""
	}
	return "`" + short(sql) + "`"
}

// short returns SQL in one line, with the short names of types.
func short(sql string) string {
	sql = strings.NewReplacer("::text", "", "timestamp with time zone", "timestamptz").Replace(sql)
	return strings.Join(strings.Fields(sql), " ")
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
