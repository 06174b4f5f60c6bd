package inbox

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/bounded"
)

// Refused reports whether err means that the database has refused a statement for the values in it, as a constraint, a
// trigger or the size of an index entry does. Such an error counts as the fault of an event. An error of the database as a
// whole, or of a lock, is no refusal.
func Refused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return ok && !connecting && faultOfServer(pg) == eventFault
}

// faultOfServer classifies an error that the server has answered.
func faultOfServer(err *pgconn.PgError) fault {
	if bounded.LacksIDs(err) {
		return outage
	}
	return faultOfState(err.Code)
}

// lacksObject reports whether an SQLSTATE names a missing grant, table, column, function, schema or type, or a missing
// unique index of an ON CONFLICT.
func lacksObject(code string) bool {
	return slices.Contains([]string{"42501", "42P01", "42703", "42883", "3F000", "42704", "42P10"}, code)
}

// lacksResource reports whether an SQLSTATE names a lack of connections, disk or memory (class 53), an error of the
// system, such as of a file (class 58), or a broken page of a table or an index.
func lacksResource(code string) bool {
	return slices.Contains([]string{"53", "58"}, code[:min(2, len(code))]) || code == "XX001" || code == "XX002"
}

// idleInTransaction is the SQLSTATE of a transaction that the database ended because it was idle for too long.
const idleInTransaction = "25P03"

// faultOfState classifies an SQLSTATE. Some classes are classified as a whole
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
func faultOfState(code string) fault {
	switch code {
	case "57014", // a statement took too long
		"25P04", // a transaction did, by the transaction_timeout of Postgres 17
		idleInTransaction:
		return timedOut
	case "55P03": // another transaction holds a lock for long
		return locked
	case "40001", "40P01", // serialization failure, deadlock: other transactions went first
		"25006",          // read-only: a failover is under way
		"26000", "42P05": // the session has changed: a pooler is used with an unsuitable query mode
		return outage
	}
	if lacksObject(code) || lacksResource(code) { // not migrated yet, not granted, or no memory, disk or file
		return outage
	}
	switch code[:min(2, len(code))] { // an error that a pooler or a handler makes may have no code
	case "08", // connection
		"57": // operator: shutdown, crash recovery
		return outage
	}
	return eventFault
}
