-- The roles of both services. The database's administrator runs this script once; it
-- can be run again, and then also takes over the objects of migrations that an
-- administrator has run:
--
--   psql "$ADMIN" --set=ON_ERROR_STOP=1 --single-transaction --file=roles.sql
--
-- video_owner owns the schema video, runs its migrations, and can touch nothing of
-- catalog's; catalog_owner does the same for catalog. The services connect as
-- video_service and catalog_service, which own nothing. Their requests run as video_api and
-- catalog_api, which see the rows of one tenant and cannot log in. Passwords are set
-- afterwards: \password video_owner. The script also installs the extension pg_trgm, which
-- the index of searches by title needs.

DO $$
DECLARE
  service text;
  owner   text;
  command text;
BEGIN
  FOREACH service IN ARRAY ARRAY['video', 'catalog'] LOOP
    owner := service || '_owner';
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = owner) THEN
      -- Migrations set their service's time limits, which needs CREATEROLE. From
      -- Postgres 16 on that right covers only the roles that are granted below.
      EXECUTE format('CREATE ROLE %I LOGIN CREATEROLE', owner);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = service || '_service') THEN
      EXECUTE format('CREATE ROLE %I LOGIN', service || '_service');
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = service || '_api') THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', service || '_api');
    END IF;
    EXECUTE format('GRANT %I TO %I WITH ADMIN OPTION', service || '_service', owner);
    -- An owner whose migrations have created the role has the option already, and the
    -- administrator then may have no right to give it.
    IF NOT EXISTS (
      SELECT FROM pg_auth_members
       WHERE roleid = to_regrole(quote_ident(service || '_api')) AND member = to_regrole(quote_ident(owner)) AND admin_option
    ) THEN
      EXECUTE format('GRANT %I TO %I WITH ADMIN OPTION', service || '_api', owner);
    END IF;
    EXECUTE format('GRANT CREATE ON DATABASE %I TO %I', current_database(), owner);

    -- A managed database's administrator is no superuser: it may transfer objects only
    -- to roles of which it is a member.
    EXECUTE format('GRANT %I TO CURRENT_USER', owner);
    EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', service);
    EXECUTE format('ALTER SCHEMA %I OWNER TO %I', service, owner);
    FOR command IN
      SELECT format('ALTER TABLE %s OWNER TO %I', c.oid::regclass, owner)
        FROM pg_class c
       WHERE c.relnamespace = to_regnamespace(quote_ident(service)) AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
         -- The sequence of a column goes with its table.
         AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i'))
      UNION ALL
      SELECT format('ALTER ROUTINE %s OWNER TO %I', p.oid::regprocedure, owner)
        FROM pg_proc p
       WHERE p.pronamespace = to_regnamespace(quote_ident(service))
    LOOP
      EXECUTE command;
    END LOOP;
    EXECUTE format('REVOKE %I FROM CURRENT_USER', owner);
  END LOOP;
END
$$;

DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_trgm') THEN
    -- A migration would install it, too. But Cloud SQL lets its administrators alone install extensions.
    CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public;
  END IF;
EXCEPTION WHEN insufficient_privilege OR invalid_schema_name THEN
  RAISE WARNING 'searches by title have no index: %', SQLERRM;
END
$$;
