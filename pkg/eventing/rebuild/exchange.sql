DO $exchange$
DECLARE
  -- All are made before the first one is executed.
  statements text[] := array(
    WITH index AS (
      SELECT indrelid, indexrelid::regclass::text AS name, {definition} AS definition,
             row_number() OVER (PARTITION BY indrelid, {definition} ORDER BY indexrelid) AS n
        FROM pg_index AS i WHERE indrelid IN ({served}::text::regclass, {shadow}::text::regclass)
    )
    SELECT statement FROM (
      SELECT 1 AS step, format('DROP TRIGGER %I ON %s', tgname, {served}::text::regclass) AS statement
        FROM pg_trigger WHERE tgrelid = {served}::text::regclass AND NOT tgisinternal
      UNION ALL
      SELECT 2, format('ALTER TABLE %I RENAME TO rebuild_swap; ALTER TABLE %I RENAME TO %1$I; ALTER TABLE rebuild_swap RENAME TO %2$I',
                       {served}::text, {shadow}::text)
      UNION ALL
      SELECT 3, format('ALTER INDEX %s RENAME TO rebuild_swap; ALTER INDEX %s RENAME TO %1$s; ALTER INDEX rebuild_swap RENAME TO %2$s',
                       served.name, shadow.name)
        FROM index AS served JOIN index AS shadow USING (definition, n)
       WHERE served.indrelid = {served}::text::regclass AND shadow.indrelid = {shadow}::text::regclass
      UNION ALL
      SELECT 4, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = {served}::text::regclass AND NOT tgisinternal
      UNION ALL
      SELECT DISTINCT 5, format('CREATE OR REPLACE VIEW %s%s AS %s', c.oid::regclass, ' WITH (' || array_to_string(reloptions, ', ') || ')',
                                rtrim(pg_get_viewdef(c.oid), ';'))
        FROM pg_depend AS d JOIN pg_rewrite AS w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
        JOIN pg_class AS c ON c.oid = w.ev_class
       WHERE d.refobjid = {served}::text::regclass AND c.relkind = 'v'
      UNION ALL
      SELECT 6, format('COMMENT ON TRIGGER %I ON %s IS %L', tgname, {served}::text::regclass, description)
        FROM pg_trigger AS t, obj_description(t.oid, 'pg_trigger') AS description
       WHERE tgrelid = {served}::text::regclass AND NOT tgisinternal AND description IS NOT NULL
    ) AS s ORDER BY step
  );
  next text;
BEGIN
  FOREACH next IN ARRAY statements LOOP
    EXECUTE next;
  END LOOP;
END
$exchange$
