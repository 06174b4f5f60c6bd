package problem

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/txn"
)

// databaseRetryAfter is the client's pause after an error of a database that is away. It is about the
// shortest time that a failover of a managed Postgres or the restart of a pooler takes.
const databaseRetryAfter = time.Second

// lockedRetryAfter is the client's pause after [txn.ErrLocked] and [txn.ErrBusy].
const lockedRetryAfter = time.Second

// From classifies err. If err is nil, From returns nil. If an *Error is in the chain of err, From
// returns this *Error as it is. From does not pass on the status of another service, because
// NOT_FOUND of that service is not our NOT_FOUND. The caller translates such a status. An
// untranslated status counts as INTERNAL.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Code: CodeInternal, Detail: "The request failed on our side.", Cause: err}
	switch {
	case errors.Is(err, context.Canceled):
		e.Code, e.Detail = CodeCanceled, "The client went away before the answer was ready."
	case errors.Is(err, txn.ErrLocked):
		e.Code, e.Reason, e.RetryAfter = CodeUnavailable, "LOCKED", lockedRetryAfter
		e.Detail = "Another transaction holds what the request would change; nothing was changed."
	case errors.Is(err, txn.ErrBusy):
		e.Code, e.Reason, e.RetryAfter = CodeUnavailable, "BUSY", lockedRetryAfter
		e.Detail = "The writes before this one take too long; nothing was changed."
	case databaseAway(err):
		e.Code, e.Detail = CodeUnavailable, "The database is not available at the moment."
		e.RetryAfter = databaseRetryAfter
	case notMigrated(err):
		e.Code, e.Detail = CodeUnavailable, "The database lacks a table: its migrations have not run, or the service connects as another role."
		e.RetryAfter = databaseRetryAfter
	case txn.IsLockTimeout(err):
		e.Code, e.Detail = CodeUnavailable, "Another transaction holds what the request needs."
		e.RetryAfter = databaseRetryAfter
	case errors.Is(err, context.DeadlineExceeded), databaseGaveUp(err):
		e.Code, e.Detail = CodeTimeout, "The request's time ran out."
	}
	return e
}

// databaseGaveUp reports whether a statement reached a time limit of its role. These limits are
// shorter than the time of some requests.
func databaseGaveUp(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{
		"57014", // query_canceled: statement_timeout
		"25P03", // idle_in_transaction_session_timeout
		"25P04", // transaction_timeout
	}, pg.Code)
}

// notMigrated reports whether a statement names a schema or a table that does not exist.
func notMigrated(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{
		"3F000", // invalid_schema_name
		"42P01", // undefined_table
	}, pg.Code)
}

// databaseAway reports whether the database could not be reached, or can do no work. It returns false
// for a statement that failed, and for a statement that ran into the request's own deadline.
func databaseAway(err error) bool {
	if errors.Is(err, bounded.ErrLimit) {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true // whatever the server answered, such as a wrong password: no statement was sent
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return awayState(pg.Code) || bounded.LacksIDs(pg)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	_, broken := errors.AsType[*net.OpError](err)
	return broken || pgconn.Timeout(err) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.ErrUnexpectedEOF)
}

// awayState reports whether the database refused a statement for a reason that is not in the statement.
// Package inbox takes the same states for an outage.
func awayState(sqlstate string) bool {
	switch sqlstate {
	case "25006", // read_only_sql_transaction: the session is of a former primary
		"57P01", // admin_shutdown
		"57P02", // crash_shutdown
		"57P03", // cannot_connect_now
		"57P05", // idle_session_timeout
		"XX001", // data_corrupted
		"XX002": // index_corrupted
		return true
	}
	switch sqlstate[:min(2, len(sqlstate))] {
	case "08", // connection_exception
		"53", // insufficient_resources: connections, disk, memory
		"58": // system_error
		return true
	}
	return false
}
