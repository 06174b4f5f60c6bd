SELECT format('column %s %s %s %s %s %s', row_number() OVER (ORDER BY attnum), attname, format_type(atttypid, atttypmod),
              CASE WHEN attnotnull THEN 'not null' END, pg_get_expr(adbin, adrelid), attacl) ||
       format(' collation %s statistics %s options %s identity %s', attcollation, attstattarget, attoptions, attidentity)
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
SELECT format('owner %s options %s toast %s row security %s %s replica identity %s', c.relowner::regrole, c.reloptions, t.reloptions,
              c.relrowsecurity, c.relforcerowsecurity, c.relreplident)
  FROM pg_class AS c LEFT JOIN pg_class AS t ON t.oid = c.reltoastrelid WHERE c.oid = $1::text::regclass
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
   AND (d.classid = 'pg_proc'::regclass OR c.relkind NOT IN ('i', 't', 'v', 'm')
        OR d.classid = 'pg_policy'::regclass AND d.objid NOT IN (SELECT oid FROM pg_policy WHERE polrelid = $1::text::regclass)
        OR d.classid = 'pg_rewrite'::regclass AND d.objid IN (
           SELECT w.oid FROM pg_rewrite AS w JOIN pg_class AS t ON t.oid = w.ev_class
            WHERE t.relkind NOT IN ('v', 'm') AND w.ev_class <> $1::text::regclass))
