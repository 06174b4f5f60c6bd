CREATE FUNCTION {mirror}() RETURNS trigger LANGUAGE plpgsql AS $mirror$
BEGIN
  IF TG_OP = 'DELETE' THEN
    DELETE FROM {shadow} AS c USING before_rows AS b WHERE ({c.key}) = ({b.key});
  ELSE
    INSERT INTO {shadow} ({columns}) SELECT {columns} FROM after_rows ORDER BY {key}
    ON CONFLICT ({key}) DO UPDATE SET ({columns}) = ROW({excluded});
  END IF;
  RETURN NULL;
END
$mirror$;
CREATE TRIGGER mirror_inserted AFTER INSERT ON {table} REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION {mirror}();
CREATE TRIGGER mirror_updated AFTER UPDATE ON {table} REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION {mirror}();
CREATE TRIGGER mirror_deleted AFTER DELETE ON {table} REFERENCING OLD TABLE AS before_rows FOR EACH STATEMENT EXECUTE FUNCTION {mirror}()
