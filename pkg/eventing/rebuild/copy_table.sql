SELECT statement FROM (
  SELECT 1 AS step, format('ALTER TABLE %s OWNER TO %s', $2::text::regclass, relowner::regrole) AS statement
    FROM pg_class WHERE oid = $1::text::regclass AND relowner <> current_user::regrole
  UNION ALL
  SELECT 2, format('ALTER TABLE %s SET (%s)', $2::text::regclass, array_to_string(reloptions, ', '))
    FROM pg_class WHERE oid = $1::text::regclass AND reloptions IS NOT NULL
  UNION ALL
  SELECT 2, format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', $2::text::regclass, attname, attstattarget)
    FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attstattarget >= 0
  UNION ALL
  SELECT 2, format('ALTER TABLE %s ALTER COLUMN %I SET (%s)', $2::text::regclass, attname, array_to_string(attoptions, ', '))
    FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attoptions IS NOT NULL
  UNION ALL
  SELECT 2, format('ALTER TABLE %s SET (toast.%s)', $2::text::regclass, array_to_string(reloptions, ', toast.'))
    FROM pg_class WHERE oid = (SELECT reltoastrelid FROM pg_class WHERE oid = $1::text::regclass) AND reloptions IS NOT NULL
  UNION ALL
  SELECT 2, format('ALTER TABLE %s REPLICA IDENTITY %s', $2::text::regclass, CASE relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END)
    FROM pg_class WHERE oid = $1::text::regclass AND relreplident IN ('f', 'n')
  UNION ALL
  SELECT 3, format('REVOKE ALL ON %s FROM %s', $2::text::regclass, {grantee})
    FROM pg_class, aclexplode(relacl) AS a WHERE oid = $2::text::regclass
  UNION ALL
  SELECT 4, format('GRANT %s ON %s TO %s%s', privilege_type, $2::text::regclass, {grantee},
                   CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END)
    FROM pg_class, aclexplode(relacl) AS a WHERE oid = $1::text::regclass
  UNION ALL
  SELECT 5, format('ALTER TABLE %s %s ROW LEVEL SECURITY', $2::text::regclass, setting)
    FROM pg_class, LATERAL (VALUES ('ENABLE', relrowsecurity), ('FORCE', relforcerowsecurity)) AS v (setting, used)
   WHERE oid = $1::text::regclass AND used
  UNION ALL
  SELECT 6, format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', polname, $2::text::regclass,
                   CASE WHEN polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
                   CASE polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
                   {roles}, ' USING (' || pg_get_expr(polqual, polrelid) || ')',
                   ' WITH CHECK (' || pg_get_expr(polwithcheck, polrelid) || ')')
    FROM pg_policy WHERE polrelid = $1::text::regclass
  UNION ALL
  SELECT 7, format('COMMENT ON TABLE %s IS %L', $2::text::regclass, description)
    FROM obj_description($1::text::regclass, 'pg_class') AS description WHERE description IS NOT NULL
  UNION ALL
  SELECT 7, format('COMMENT ON POLICY %I ON %s IS %L', polname, $2::text::regclass, description)
    FROM pg_policy, obj_description(oid, 'pg_policy') AS description WHERE polrelid = $1::text::regclass AND description IS NOT NULL
) AS s ORDER BY step
