package inbox

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// isOutage tells a fault of the database or the network, which time mends, from
// the event's own. An outage is waited out and counts against nobody.
func isOutage(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return outageState(pg.Code)
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &network) || errors.As(err, &connect) ||
		// A connection that broke under a statement has no SQLSTATE; whether
		// its COMMIT arrived is unknown, and it counts as failed.
		pgconn.SafeToRetry(err) || isBrokenConnection(err)
}

// outageState classifies SQLSTATEs by class where the whole class is meant.
func outageState(code string) bool {
	switch code {
	case "40001", "40P01", // serialization failure, deadlock: the others went first
		"55P03", "57014", // lock or statement timeout
		"25006": // read-only: a failover is under way
		return true
	}
	switch code[:2] {
	case "08", // connection
		"53", // resources: connections, disk, memory
		"57", // operator: shutdown, crash recovery
		"58": // system error
		return true
	}
	return false
}

func isBrokenConnection(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}
