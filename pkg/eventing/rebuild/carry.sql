WITH page AS MATERIALIZED (
  SELECT {columns} FROM {table} WHERE ({key}) > {after} ORDER BY {key} LIMIT $2
), lacking AS MATERIALIZED (
  SELECT {s.columns} FROM page AS s LEFT JOIN {shadow} AS b ON ({b.key}) = ({s.key})
   WHERE b.version IS NULL OR (b.epoch, b.version) < (s.epoch, s.version)
), copied AS (
  INSERT INTO {shadow} AS c ({columns}) SELECT {columns} FROM lacking ORDER BY {key}
  ON CONFLICT ({key}) DO UPDATE SET ({columns}) = ROW({excluded}) WHERE (c.epoch, c.version) < (excluded.epoch, excluded.version)
)
SELECT coalesce((SELECT {id} FROM page ORDER BY {key} OFFSET $2 - 1 LIMIT 1), ''), (SELECT count(*) FROM lacking)
