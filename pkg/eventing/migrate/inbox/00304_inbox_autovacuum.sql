-- Autovacuum by a fixed number of rows: a share of an inbox that keeps a month of
-- events would be millions of dead rows between two vacuums. Vacuuming after inserts
-- keeps the visibility map current, which makes the purge's index cheap.

-- +goose Up
ALTER TABLE inbox SET (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

-- +goose Down
ALTER TABLE inbox RESET (
  autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
  autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold,
  autovacuum_analyze_scale_factor, autovacuum_analyze_threshold);
