package catalog

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// This file has the statements that write to a projection's table, or to its shadow.

// tableSQL has the statements that move the rows of a table. The table is the served one, or its
// shadow in a rebuild. Reads for users are always of the served table.
type tableSQL struct{ table, positions, lock, upsert, incomplete, countIncomplete string }

func (a videos) sql() *tableSQL {
	if a.shadow {
		return shadowVideos
	}
	return servedVideos
}

//go:embed upsert.sql
var upsertTemplate string

// upsertSQL returns the statement that upsert runs. The table has these columns of these types, and
// in addition the columns last_event_id, revision and incomplete. If a row was absent, the
// statement inserts it, unless another transaction has inserted it since. If a row was there, it is
// locked, so an insert of it certainly conflicts. Then the conflict clause updates the row, and
// Postgres finds the row by its key, whatever the plan is.
func upsertSQL(table, key, columns, types string) string {
	columns += ", last_event_id, revision, incomplete"
	var arrays []string
	for i, kind := range strings.Split(types+", uuid, bigint, bool, bool", ", ") {
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, kind))
	}
	return strings.NewReplacer("{table}", table, "{key}", key, "{columns}", columns,
		"{arrays}", strings.Join(arrays, ", "), "{assignments}", columnName.ReplaceAllString(columns, "$0 = excluded.$0")).Replace(upsertTemplate)
}

var columnName = regexp.MustCompile(`\w+`)

func countIncompleteSQL(table string) string {
	return `SELECT count(*) FROM (SELECT FROM ` + table + ` WHERE incomplete LIMIT $1) AS rows_found`
}
