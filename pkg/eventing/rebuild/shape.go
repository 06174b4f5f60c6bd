package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrShape is returned if a table and its shadow differ in more than their rows: a migration
// has changed the served one since, and the rebuild must be finished and started again; or, at
// the begin, it has something that a shadow cannot have, such as a foreign key.
var ErrShape = errors.New("the table and its shadow have different shapes")

// shape is what readers and writers of table $1 see of it, apart from its rows and from the
// names of its indexes. An index that is not valid yet has no equal. Triggers and views follow
// the name of the table, so that a shadow has none; but a disabled trigger would be enabled, and
// a view of a role that this one is no member of cannot be made again. What else depends on the
// table, such as a publication, a sequence or a function, would stay with the old one.
const shape = `
	SELECT format('column %s %s %s %s %s %s', row_number() OVER (ORDER BY attnum), attname, format_type(atttypid, atttypmod),
	              CASE WHEN attnotnull THEN 'not null' END, pg_get_expr(adbin, adrelid), attacl) ||
	       format(' collation %s statistics %s identity %s', attcollation, attstattarget, attidentity)
	  FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
	 WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped
	UNION ALL
	SELECT format('index %s primary %s valid %s', {definition}, indisprimary, indisvalid)
	  FROM pg_index AS i WHERE indrelid = $1::text::regclass
	UNION ALL
	SELECT format('constraint %s', pg_get_constraintdef(oid)) FROM pg_constraint
	 WHERE $1::text::regclass IN (conrelid, confrelid) AND contype <> 't'
	UNION ALL
	SELECT format('right %s of %s %s', privilege_type, a.grantee::regrole, is_grantable)
	  FROM pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner))) AS a WHERE oid = $1::text::regclass
	UNION ALL
	SELECT format('owner %s options %s row security %s %s replica identity %s',
	              relowner::regrole, reloptions, relrowsecurity, relforcerowsecurity, relreplident)
	  FROM pg_class WHERE oid = $1::text::regclass
	UNION ALL
	SELECT format('trigger %s in state %s', tgname, tgenabled) FROM pg_trigger
	 WHERE tgrelid = $1::text::regclass AND NOT tgisinternal AND tgenabled <> 'O'
	UNION ALL
	SELECT format('materialized view %s', c.oid::regclass)
	  FROM pg_depend AS d JOIN pg_rewrite AS w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
	  JOIN pg_class AS c ON c.oid = w.ev_class
	 WHERE d.refobjid = $1::text::regclass AND c.relkind = 'm'
	UNION ALL
	SELECT format('view %s, whose owner this role is not', c.oid::regclass)
	  FROM pg_depend AS d JOIN pg_rewrite AS w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
	  JOIN pg_class AS c ON c.oid = w.ev_class
	 WHERE d.refobjid = $1::text::regclass AND c.relkind = 'v'
	   AND NOT (pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(c.relnamespace, 'CREATE'))
	UNION ALL
	SELECT format('policy %s %s %s of %s using %s check %s', polname, polcmd, polpermissive, polroles::regrole[],
	              pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)) FROM pg_policy WHERE polrelid = $1::text::regclass
	UNION ALL
	SELECT format('rule %s', rulename) FROM pg_rewrite WHERE ev_class = $1::text::regclass
	UNION ALL
	SELECT format('publication %s', pubname) FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid
	 WHERE prrelid = $1::text::regclass
	UNION ALL
	SELECT format('statistics %s', stxname) FROM pg_statistic_ext WHERE stxrelid = $1::text::regclass
	UNION ALL
	SELECT format('dependant %s', pg_describe_object(d.classid, d.objid, d.objsubid))
	  FROM pg_depend AS d LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
	 WHERE (d.refclassid, d.refobjid) IN (SELECT 'pg_class'::regclass::oid, oid FROM pg_class WHERE oid = $1::text::regclass UNION ALL
	                                      SELECT 'pg_type'::regclass::oid, reltype FROM pg_class WHERE oid = $1::text::regclass)
	   AND (d.classid = 'pg_proc'::regclass OR c.relkind NOT IN ('i', 't', 'v', 'm'))`

// definition is an index without its name.
const definition = `concat(i.indisunique, substr(pg_get_indexdef(i.indexrelid), strpos(pg_get_indexdef(i.indexrelid), ' USING ')))`

// querier is a pool, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// sameShape returns ErrShape if the table and its shadow differ.
func (p Part) sameShape(ctx context.Context, db querier) error {
	sql := strings.ReplaceAll(shape, "{definition}", definition)
	served, err := lines(ctx, db, sql, p.Table)
	if err != nil {
		return err
	}
	shadow, err := lines(ctx, db, sql, Shadow(p.Table))
	if err != nil {
		return err
	}
	var differ []string
	for _, line := range served {
		if !slices.Contains(shadow, line) {
			differ = append(differ, p.Table+" has "+line)
		}
	}
	for _, line := range shadow {
		if !slices.Contains(served, line) {
			differ = append(differ, Shadow(p.Table)+" has "+line)
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("%w: %s", ErrShape, strings.Join(differ, "; "))
	}
	return nil
}

func lines(ctx context.Context, db querier, sql string, args ...any) ([]string, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// execAll runs the statements that a query returns.
func execAll(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	statements, err := lines(ctx, tx, sql, args...)
	if err != nil || len(statements) == 0 {
		return err
	}
	_, err = tx.Exec(ctx, strings.Join(statements, ";\n"))
	return err
}
