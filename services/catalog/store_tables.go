package catalog

import (
	"fmt"
	"regexp"
	"strings"

	"example.com/lockstep/pkg/eventing/rebuild"
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

var servedEngagements, shadowEngagements = engagementStatements(engagementTable), engagementStatements(rebuild.Shadow(engagementTable))

func (a engagements) sql() *tableSQL {
	if a.shadow {
		return shadowEngagements
	}
	return servedEngagements
}

func engagementStatements(table string) *tableSQL {
	return &tableSQL{
		table: table,
		positions: `
			SELECT $3::text AS aggregate_type, concat(user_id, ':', video_id) AS aggregate_id, epoch, version
			  FROM unnest($1::uuid[], $2::uuid[]) AS wanted (user_id, video_id)
			  JOIN ` + table + ` USING (user_id, video_id)`,
		// A subquery with FOR UPDATE stays one: with any plan each row is found by its key, in
		// the order of the locks.
		lock: `
			SELECT ` + engagementColumns + `, last_event_id, revision, incomplete
			  FROM (SELECT u, v FROM unnest($1::uuid[], $2::uuid[]) AS ids (u, v) ORDER BY u, v) AS named
			 CROSS JOIN LATERAL (
			       SELECT ` + engagementColumns + `, last_event_id, revision, incomplete
			         FROM ` + table + ` WHERE (user_id, video_id) = (u, v) FOR UPDATE) AS locked`,
		upsert: upsertSQL(table, "user_id, video_id", engagementColumns,
			"uuid, uuid, bool, bool, bigint, bigint, bigint, timestamptz, timestamptz, timestamptz, text"),
		incomplete: `
			WITH next AS MATERIALIZED (
			  SELECT user_id, video_id FROM ` + table + `
			   WHERE incomplete AND revision < $1 AND (user_id, video_id) > ($2::uuid, $3::uuid)
			   ORDER BY user_id, video_id LIMIT $4)
			SELECT concat(user_id, ':', video_id) FROM next WHERE user_id = (SELECT user_id FROM next ORDER BY user_id LIMIT 1) ORDER BY video_id`,
		countIncomplete: countIncompleteSQL(table),
	}
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
