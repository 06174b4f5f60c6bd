WITH step AS MATERIALIZED (
  SELECT {columns}, present FROM unnest({arrays}) AS s ({columns}, present)
), inserted AS (
  INSERT INTO {table} ({columns}) SELECT {columns} FROM step WHERE NOT present ORDER BY {key}
  ON CONFLICT ({key}) DO NOTHING RETURNING {key}
), updated AS (
  INSERT INTO {table} ({columns}) SELECT {columns} FROM step WHERE present ORDER BY {key}
  ON CONFLICT ({key}) DO UPDATE SET {assignments}, applied_at = clock_timestamp() RETURNING {key}
)
SELECT concat_ws(':', {key}) FROM inserted UNION ALL SELECT concat_ws(':', {key}) FROM updated
