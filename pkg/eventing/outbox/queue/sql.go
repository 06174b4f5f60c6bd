package queue

import (
	"fmt"
	"strings"
)

// Both claims end alike: candidates, the places of rows that may be the heads of
// their aggregates, become heads, events, and a lease.
//
// A head is claimed by its row's lock, so that of two relays one skips it. It is
// one only if the version before it is published or gone. Its lookups go by the
// unique key: "published_at IS NULL" is written so that no partial index, whose
// entries of published rows a held snapshot keeps, can answer it.
//
// The window function orders what it adds up: a run that is cut short must lose
// its end.
var claimCandidates = `
, head AS MATERIALIZED (
	SELECT o.id, o.aggregate_type, o.aggregate_id, o.version
	  FROM candidate c
	 CROSS JOIN LATERAL (
		SELECT o.id, o.aggregate_type, o.aggregate_id, o.version
		  FROM outbox o
		 WHERE o.ctid = c.place
		   AND o.aggregate_type <> ALL($3::text[])
		   AND coalesce(o.published_at, o.parked_at) IS NULL
		   AND coalesce(o.next_retry_at <= now(), true)
		   AND coalesce(o.locked_at <= now() - $2::interval, true)
		   AND (o.version = 1 OR coalesce((SELECT p.published_at IS NOT NULL
		                   FROM outbox p
		                  WHERE p.aggregate_type = o.aggregate_type AND p.aggregate_id = o.aggregate_id AND p.version < o.version
		                  ORDER BY p.version DESC LIMIT 1), true))
		   FOR UPDATE SKIP LOCKED) o
	 LIMIT $4
), event AS (
	SELECT h.id AS head, ` + columns("e") + `
	  FROM head h
	 CROSS JOIN LATERAL (
		SELECT ` + columns("o") + `
		  FROM outbox o
		 WHERE o.aggregate_type = h.aggregate_type AND o.aggregate_id = h.aggregate_id AND o.version >= h.version
		   AND coalesce(o.published_at, 'infinity') = 'infinity'
		 ORDER BY o.version
		 LIMIT $6) e
	 LIMIT $5
), fits AS MATERIALIZED (
	SELECT e.head, ` + columns("e") + `
	  FROM (SELECT e.head, ` + columns("e") + `,
	               sum(octet_length(e.payload)) OVER (ORDER BY e.head, e.version) - octet_length(e.payload) AS before
	          FROM event e) e
	 WHERE e.before < $7
), leased AS (
	UPDATE outbox
	   SET lock_token = $1, locked_at = now()
	 WHERE id = ANY(ARRAY(SELECT DISTINCT head FROM fits))
)`

// An event's columns are null when nothing was claimed: the rest of the row is
// wanted all the same.
var claimedEvents = columns("e") + `
  FROM (SELECT) AS always
  LEFT JOIN fits e ON true
 ORDER BY e.head, e.version`

// successor is the event that comes next after done.
const successor = `
		SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version
		  FROM outbox o
		 WHERE o.aggregate_type = done.aggregate_type AND o.aggregate_id = done.aggregate_id AND o.version > done.version
		 ORDER BY o.version
		 LIMIT 1`

// Ids beyond the present snapshot's come with rows that were restored from another
// cluster, and would be new at each look: the walk has them. An open transaction is
// looked up as a range, in the index's order: as a value
// that statistics say many rows have, the planner would read the table for it.
var freshClaim = `
WITH fresh AS (
	(SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version
	   FROM outbox o
	  WHERE o.published_at IS NULL AND o.version > 0
	    AND o.xact >= pg_snapshot_xmax($8::text::pg_snapshot) AND o.xact < pg_snapshot_xmax(pg_current_snapshot())
	  ORDER BY o.xact
	  LIMIT $9)
	UNION ALL
	(SELECT o.place, o.aggregate_type, o.aggregate_id, o.version
	   FROM pg_snapshot_xip($8::text::pg_snapshot) AS open(xact)
	  CROSS JOIN LATERAL (
		SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version
		  FROM outbox o
		 WHERE o.published_at IS NULL AND o.version > 0 AND o.xact >= open.xact AND o.xact <= open.xact
		 ORDER BY o.xact
		 LIMIT $9) o
	  LIMIT $9)
), next AS (
	SELECT o.place, o.aggregate_type, o.aggregate_id, o.version
	  FROM unnest($10::text[], $11::text[], $12::bigint[]) AS done(aggregate_type, aggregate_id, version)
	 CROSS JOIN LATERAL (` + successor + `) o
), candidate AS (
	SELECT DISTINCT ON (c.aggregate_type, c.aggregate_id) c.place
	  FROM (SELECT place, aggregate_type, aggregate_id, version FROM fresh
	        UNION ALL
	        SELECT place, aggregate_type, aggregate_id, version FROM next) c
	 ORDER BY c.aggregate_type, c.aggregate_id, c.version
)` + claimCandidates + `
SELECT pg_current_snapshot()::text, (SELECT count(*) FROM head), (SELECT count(*) FROM fresh), ` + claimedEvents

// step goes to the head of the next aggregate.
const step = `
	SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.parked_at, o.next_retry_at
	  FROM outbox o
	 WHERE o.published_at IS NULL AND %s
	 ORDER BY o.aggregate_type COLLATE "C", o.aggregate_id COLLATE "C", o.version
	 LIMIT 1`

// onward goes from the last head of a walk to the next.
const onward = `
	SELECT o.place, o.aggregate_type, o.aggregate_id, o.version, o.parked_at, o.next_retry_at
	  FROM walk w CROSS JOIN LATERAL (%s) o`

// A walk skips to the next aggregate along the index, however many versions of
// one are pending, and past the rest of a type that it is to leave alone: the
// last character there is comes behind every id. It is one comparison rather than
// two branches, for which the planner would sort all that is pending.
var walkClaim = `
WITH RECURSIVE walk AS (
	(` + fmt.Sprintf(step, `(o.aggregate_type COLLATE "C", o.aggregate_id COLLATE "C") > ($8::text, $9::text)`) + `)
	UNION ALL` + fmt.Sprintf(onward, fmt.Sprintf(step, `(o.aggregate_type COLLATE "C", o.aggregate_id COLLATE "C") >
	       (w.aggregate_type, CASE WHEN w.aggregate_type = ANY($3::text[]) THEN chr(1114111) ELSE w.aggregate_id END)`)) + `
), walked AS MATERIALIZED (
	SELECT place, aggregate_type, aggregate_id, parked_at, next_retry_at, row_number() OVER () AS step FROM walk LIMIT $10
), candidate AS (
	SELECT place FROM walked
)` + claimCandidates + `, report AS (
	SELECT pg_current_snapshot()::text AS seen, (SELECT count(*) FROM head) AS heads, (SELECT count(*) FROM walked) AS walked,
	       (SELECT aggregate_type FROM walked ORDER BY step DESC LIMIT 1) AS last_type,
	       (SELECT aggregate_id FROM walked ORDER BY step DESC LIMIT 1) AS last_id,
	       (SELECT extract(epoch FROM min(next_retry_at) - now())::float8
	          FROM walked WHERE parked_at IS NULL AND next_retry_at > now()) AS retry_in
)
SELECT report.seen, report.heads, report.walked, report.last_type, report.last_id, report.retry_in,
       ` + strings.Replace(claimedEvents, "(SELECT) AS always", "report", 1)
