package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrSettings is the error of sessions with settings that would damage data without an error, or that would make
// every statement fail. The text of the error has the settings. They come from the database or from the role.
var ErrSettings = errors.New("the database, or the role, has settings with which the service does not work")

// unfit is a SQL expression for the settings of the session that ErrSettings names. It is empty if there are none.
//
//   - A database of another encoding refuses the characters that it lacks, so each event with one of them would fail. With
//     SQL_ASCII, or a session of the same encoding, Postgres would take each byte of UTF-8 for a character. Searches,
//     lengths and dumps would be wrong.
//   - With another encoding of the session, Postgres would convert text that is UTF-8 already.
//   - With session_replication_role = replica, Postgres calls no triggers. The counters of a read model and the
//     shadow of a rebuild would miss rows.
//   - With row_security = off, Postgres refuses each statement on a table with policies.
//   - With another isolation level, a transaction that has waited for a row fails, because it may not see the
//     commits of that row's writers.
//
// The SQL has the values that each setting may have. The first of them is the usual value. The further ones
// have the same effect.
const unfit = `coalesce((
	SELECT string_agg(format('%s is %s, and must be %s', name, current_setting(name), fit[1]), '; ' ORDER BY name)
	  FROM (VALUES ('server_encoding', array['UTF8']), ('client_encoding', array['UTF8', 'UNICODE', 'SQL_ASCII']),
	               ('session_replication_role', array['origin', 'local']), ('row_security', array['on']),
	               ('default_transaction_isolation', array['read committed'])) AS needed (name, fit)
	 WHERE current_setting(name) <> ALL (fit)), '')`

// checkSettings returns ErrSettings if migrations cannot run in the sessions of db.
func checkSettings(ctx context.Context, db *sql.DB) error {
	var found string
	if err := db.QueryRowContext(ctx, `SELECT `+unfit).Scan(&found); err != nil {
		return fmt.Errorf("read the settings of the database: %w", err)
	}
	return settingsError(found)
}

// settingsError returns the ErrSettings for a value of unfit, or nil if the value is empty.
func settingsError(found string) error {
	if found == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrSettings, found)
}
