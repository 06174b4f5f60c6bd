-- A migration that runs until a test lets it end.
-- +goose Up
SELECT pg_advisory_xact_lock_shared(4711);
