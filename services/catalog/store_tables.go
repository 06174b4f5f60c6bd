package catalog

import (
	"fmt"
	"regexp"
	"strings"
)

// This file has the statements that write to a projection's table, or to its shadow.

// tableSQL is the statements that move the rows of a table: the one that is served, or its shadow in
// a rebuild. Reads for users are of the served one.
type tableSQL struct{ table, positions, lock, upsert, incomplete, countIncomplete string }

func (a videos) sql() *tableSQL {
	if a.shadow {
		return shadowVideos
	}
	return servedVideos
}

// upsertSQL is the statement of upsert for a table with these columns of these types,
// last_event_id, revision and incomplete. An absent row is inserted if it is still absent. An existing row is
// locked, so its "conflict" is certain, and the statement finds it by its key with any plan.
func upsertSQL(table, key, columns, types string) string {
	columns += ", last_event_id, revision, incomplete"
	var arrays []string
	for i, kind := range strings.Split(types+", uuid, bigint, bool, bool", ", ") {
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, kind))
	}
	return strings.NewReplacer("{table}", table, "{key}", key, "{columns}", columns,
		"{arrays}", strings.Join(arrays, ", "), "{assignments}", columnName.ReplaceAllString(columns, "$0 = excluded.$0")).Replace(`
		WITH step AS MATERIALIZED (
		  SELECT {columns}, present FROM unnest({arrays}) AS s ({columns}, present)
		), inserted AS (
		  INSERT INTO {table} ({columns}) SELECT {columns} FROM step WHERE NOT present ORDER BY {key}
		  ON CONFLICT ({key}) DO NOTHING RETURNING {key}
		), updated AS (
		  INSERT INTO {table} ({columns}) SELECT {columns} FROM step WHERE present ORDER BY {key}
		  ON CONFLICT ({key}) DO UPDATE SET {assignments}, applied_at = clock_timestamp() RETURNING {key}
		)
		SELECT concat_ws(':', {key}) FROM inserted UNION ALL SELECT concat_ws(':', {key}) FROM updated`)
}

var columnName = regexp.MustCompile(`\w+`)

func countIncompleteSQL(table string) string {
	return `SELECT count(*) FROM (SELECT FROM ` + table + ` WHERE incomplete LIMIT $1) AS rows_found`
}
