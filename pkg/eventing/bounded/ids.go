package bounded

import (
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// LacksIDs reports whether the server has refused a statement because it has no ids left for transactions or
// multixacts: old rows have not been frozen in time. Until they are, the server takes no writes. LacksIDs looks at the
// routine of the server, because the SQLSTATE is also that of values that are too large, and the words depend on
// lc_messages.
func LacksIDs(err *pgconn.PgError) bool {
	return err.Code == "54000" && slices.Contains([]string{"GetNewTransactionId", "GetNewMultiXactId"}, err.Routine)
}
