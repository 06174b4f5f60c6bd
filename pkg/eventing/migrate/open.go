package migrate

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"example.com/lockstep/pkg/eventing/bounded"
)

// Open returns connections with the settings that migrations rely on, whatever the defaults of the database
// and of the role are. The settings turn the time limits of the server off, so that only the caller's context
// bounds a migration. With a limit of the server, the creation of an index on a large table would fail in
// each run. It would also begin again in each run, because an index that was not finished is dropped. The
// settings make the server end the session of a client that is gone, or that stands still between the
// statements of a migration (bounded.LostClient). Open makes the settings after the start of a session,
// because a pooler may refuse them in the start-up message. Open does not make the sessions of a read-only
// database writable. The URL may have the settings of a pool, such as pool_max_conns.
func (s Schema) Open(adminURL string) (*sql.DB, error) {
	config, err := pgxpool.ParseConfig(adminURL)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config.ConnConfig, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		// First, because the other settings may take longer than the limit.
		if _, err := conn.Exec(ctx, `SET statement_timeout = 0`); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, sessionSettings, pgx.Identifier{s.Name}.Sanitize(), s.Role, s.RequestRole)
		return err
	})), nil
}

// sessionSettings is the statement by which Open makes the settings of a session. It turns off each time
// limit that the server has: older versions of Postgres lack some of them. One of them is the limit for idle
// sessions, because Up holds its lock in a session that is idle while the migrations run in another one.
const sessionSettings = `
	SELECT set_config('search_path', $1, false), set_config('eventing.role', $2, false), set_config('eventing.request_role', $3, false),
	       set_config('default_transaction_isolation', 'read committed', false), set_config('row_security', 'on', false),
	       set_config('client_encoding', 'UTF8', false), set_config('standard_conforming_strings', 'on', false),
	       ` + bounded.LostClient + `,
	       (SELECT count(set_config(name, '0', false)) FROM pg_settings
	         WHERE name IN ('lock_timeout', 'transaction_timeout', 'idle_session_timeout'))`
