{{/* This file has the statements that claim, and the parts that these statements share. $1 is the
   token of the claiming relay, $2 is the duration of a lease, and $3 has the types to skip. $4 to
   $7 limit the heads, the events, the events of one aggregate, and the bytes. $8 has the tokens of
   the living relays, and $9 is the longest time before a retry. $10 is the life of the server that the
   relay has met: see HeartbeatResult. In another life nothing is claimed, because the relay's row there may
   have a later low than the relay. $11 has the tokens of relays whose processes have ended. Their leases count as none.

   All claims end in the same way. A candidate is the place of a row that may be the head of its
   aggregate. The last part of a claim finds the heads among the candidates, reads their events,
   and leases the heads.

   A relay claims a head by the lock of the head's row. If two relays want the same head, one of
   them skips it. A row is a head only if the version before it is published or deleted. A lease
   or a retry time from the future counts as none, because the database's clock has been set back
   since that time was written. A lease is from the future if it is more than a second later than
   clock_timestamp(). The comparison does not use now(), because now() is when the claim began. A
   claim may last for seconds, and other relays take leases during that time. */}}
{{define "no lease"}}
		       (o.locked_at IS NULL OR o.locked_at <= now() - $2::interval OR o.locked_at > clock_timestamp() + interval '1 second'
		        OR o.lock_token = ANY($11::text[]))
{{end}}

{{define "is head"}}
		       o.aggregate_type <> ALL($3::text[])
		   AND o.published_at IS NULL AND o.parked_at IS NULL
		   AND (o.next_retry_at IS NULL OR o.next_retry_at <= now() OR o.next_retry_at > now() + $9::interval)
		   AND (o.version = 1 OR coalesce((SELECT p.published_at IS NOT NULL
		                   FROM outbox p
		                  WHERE p.aggregate_type = o.aggregate_type AND p.aggregate_id = o.aggregate_id AND p.version < o.version
		                  ORDER BY p.version DESC LIMIT 1), true))
{{end}}

{{/* The oldest row of each aggregate among the rows of a query. */}}
{{define "candidates"}}
	SELECT DISTINCT ON (r.aggregate_type, r.aggregate_id) r.place
	  FROM ({{.}}) r
	 ORDER BY r.aggregate_type, r.aggregate_id, r.version
{{end}}

{{/* The first pending event after the version in done. If a part of a batch is settled again
   after the whole batch was settled, there are published events between done and this event. */}}
{{define "next pending"}}
		SELECT o.ctid AS place, o.id, o.aggregate_type, o.aggregate_id, o.version
		  FROM outbox o
		 WHERE o.aggregate_type = done.aggregate_type AND o.aggregate_id = done.aggregate_id AND o.version > done.version
		   AND o.published_at IS NULL
		 ORDER BY o.version
		 LIMIT 1
{{end}}

{{/* The window function orders its rows by head and version, because a batch that is cut short
   must lose its last events.

   passed has the heads that the claim had to skip although no living relay takes care of them.
   Either another session has locked the head's row, or a relay that is not alive has the lease. In
   the second case until is when the lease ends, unless the lease counts as none. */}}
{{define "claim candidates"}}
, present AS MATERIALIZED (
	SELECT to_timestamp(extract(epoch FROM pg_postmaster_start_time()) + extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())) AS server
), head AS MATERIALIZED (
	SELECT o.place, o.id, o.aggregate_type, o.aggregate_id, o.version
	  FROM candidate c
	 CROSS JOIN LATERAL (
		SELECT o.ctid AS place, o.id, o.aggregate_type, o.aggregate_id, o.version
		  FROM outbox o
		 WHERE o.ctid = c.place
		   AND {{template "no lease"}}
		   AND {{template "is head"}}
		   FOR UPDATE SKIP LOCKED) o
	 WHERE (SELECT $10::timestamptz IS NULL OR server = $10::timestamptz FROM present)
	 LIMIT $4
), event AS (
	SELECT h.id AS head, {{columns "e"}}
	  FROM head h
	 CROSS JOIN LATERAL (
		SELECT {{columns "o"}}
		  FROM outbox o
		 WHERE o.aggregate_type = h.aggregate_type AND o.aggregate_id = h.aggregate_id AND o.version >= h.version
		   AND o.published_at IS NULL
		 ORDER BY o.version
		 LIMIT $6) e
	 LIMIT $5
), fits AS MATERIALIZED (
	SELECT e.head, {{columns "e"}}
	  FROM (SELECT e.head, {{columns "e"}},
	               sum(octet_length(e.payload)) OVER (ORDER BY e.head, e.version) - octet_length(e.payload) AS before
	          FROM event e) e
	 WHERE e.before < $7
), leased AS (
	UPDATE outbox
	   SET lock_token = $1, locked_at = now()
	 WHERE id = ANY(ARRAY(SELECT DISTINCT head FROM fits))
), passed AS MATERIALIZED (
	SELECT o.until
	  FROM (SELECT c.place FROM candidate c WHERE c.place NOT IN (SELECT place FROM head)) c
	 CROSS JOIN LATERAL (
		SELECT CASE WHEN o.lock_token <> ALL($11::text[]) THEN o.locked_at + $2::interval END AS until
		  FROM outbox o
		 WHERE o.ctid = c.place
		   AND (o.lock_token IS NULL OR o.locked_at <= now() - $2::interval OR o.locked_at > clock_timestamp() + interval '1 second'
		        OR o.lock_token <> ALL($8::text[]))
		   AND {{template "is head"}}) o
), report AS (
	SELECT pg_current_snapshot()::text AS seen, present.server, (SELECT count(*) FROM head) AS heads, (SELECT count(*) FROM passed) AS passed,
	       coalesce((SELECT extract(epoch FROM max(until) - now())::float8
	                   FROM passed WHERE until > now() AND until <= now() + $2::interval), 0) AS until
	  FROM present
)
{{end}}

{{define "report"}}
SELECT report.seen, report.server, report.heads, report.passed, report.until
{{end}}

{{/* If nothing was claimed, the statement returns one row, in which the columns of the event are
   null, because the caller needs the report in any case. */}}
{{define "claimed events"}}
{{columns "e"}}
  FROM report
  LEFT JOIN fits e ON true
 ORDER BY e.head, e.version
{{end}}

{{/* Rows that were restored from another cluster may have transaction ids that are above all ids
   of the present snapshot. Each claim would take such rows for new. So claims leave these rows
   out, and only a scan finds them. The id of an open transaction is looked up as a range, in the
   order of the index. If the condition were that the ids are equal, the planner might expect many
   rows because of the table's statistics, and read the whole table.

   The rows of tenants to skip count against the limit of rows. So a claim reads no more rows than
   the limit, even if such a tenant has a million rows. */}}
{{define "claim new events"}}
WITH fresh AS MATERIALIZED (
	(SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.tenant_id
	   FROM outbox o
	  WHERE o.published_at IS NULL
	    AND o.xact >= pg_snapshot_xmax($12::text::pg_snapshot) AND o.xact < pg_snapshot_xmax(pg_current_snapshot())
	  ORDER BY o.xact, uuid_send(o.id)
	  LIMIT $13)
	UNION ALL
	(SELECT o.place, o.aggregate_type, o.aggregate_id, o.version, o.tenant_id
	   FROM pg_snapshot_xip($12::text::pg_snapshot) AS open(xact)
	  CROSS JOIN LATERAL (
		SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.tenant_id
		  FROM outbox o
		 WHERE o.published_at IS NULL AND o.xact >= open.xact AND o.xact <= open.xact
		 ORDER BY o.xact, uuid_send(o.id)
		 LIMIT $13) o
	  LIMIT $13)
), next AS (
	SELECT o.place, o.aggregate_type, o.aggregate_id, o.version
	  FROM unnest($14::text[], $15::text[], $16::bigint[]) AS done(aggregate_type, aggregate_id, version)
	 CROSS JOIN LATERAL ({{template "next pending"}}) o
), candidate AS ({{template "candidates" `SELECT place, aggregate_type, aggregate_id, version
	         FROM fresh WHERE tenant_id <> ALL($17::text[])
	        UNION ALL
	        SELECT place, aggregate_type, aggregate_id, version FROM next`}}
){{template "claim candidates"}}{{template "report"}}, (SELECT count(*) FROM fresh), {{template "claimed events"}}
{{end}}

{{/* A page of a scan has $15 rows, in the order of their transactions. Published rows count, too.
   So the size of the page bounds the cost of the page. */}}
{{define "claim a page"}}
WITH page AS MATERIALIZED (
	SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.xact, o.id,
	       o.published_at IS NULL AND o.parked_at IS NULL AND (o.next_retry_at IS NULL OR NOT $16::boolean)
	       AND o.tenant_id <> ALL($17::text[]) AND ($18::text[] IS NULL OR o.tenant_id = ANY($18::text[])) AS pending
	  FROM outbox o
	 WHERE (o.xact, uuid_send(o.id)) > ($12::text::xid8, uuid_send($13::uuid)) AND o.xact <= $14::text::xid8
	 ORDER BY o.xact, uuid_send(o.id)
	 LIMIT $15
), last AS (
	SELECT xact, id FROM page ORDER BY xact DESC, uuid_send(id) DESC LIMIT 1
), candidate AS ({{template "candidates" `SELECT place, aggregate_type, aggregate_id, version FROM page WHERE pending`}}
){{template "claim candidates"}}{{template "report"}}, (SELECT count(*) FROM page), (SELECT xact::text FROM last), (SELECT id FROM last), {{template "claimed events"}}
{{end}}

{{/* The statement reads both ends of the index of retry times. At one end are the rows that are
   due. At the other end are the rows whose retry time is too far ahead, because the clock was set
   back. Candidates are claimed in the order of their retry times. So if there are more candidates
   than a claim takes, each candidate has a first turn before another one has a second turn.

   A person may have written the time infinity. It counts as too far ahead. Older releases of Postgres cannot
   subtract from it, so the time until the next retry leaves it out. */}}
{{define "claim retries"}}
WITH due AS MATERIALIZED (
	(SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.next_retry_at
	   FROM outbox o
	  WHERE o.next_retry_at <= now() AND o.published_at IS NULL AND o.parked_at IS NULL AND o.aggregate_type <> ALL($3::text[])
	    AND {{template "no lease"}}
	  ORDER BY o.next_retry_at
	  LIMIT $12)
	UNION ALL
	(SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.next_retry_at
	   FROM outbox o
	  WHERE o.next_retry_at > now() + $9::interval AND o.published_at IS NULL AND o.parked_at IS NULL AND o.aggregate_type <> ALL($3::text[])
	    AND {{template "no lease"}}
	  ORDER BY o.next_retry_at
	  LIMIT $12)
), candidate AS (
	SELECT d.place
	  FROM (SELECT DISTINCT ON (r.aggregate_type, r.aggregate_id) r.place, r.next_retry_at
	          FROM due r
	         ORDER BY r.aggregate_type, r.aggregate_id, r.version) d
	 ORDER BY d.next_retry_at
){{template "claim candidates"}}{{template "report"}},
       coalesce((SELECT extract(epoch FROM o.next_retry_at - now())::float8
                   FROM outbox o
                  WHERE o.next_retry_at > now() AND o.next_retry_at <= now() + $9::interval
                    AND o.published_at IS NULL AND o.parked_at IS NULL AND o.aggregate_type <> ALL($3::text[])
                  ORDER BY o.next_retry_at LIMIT 1), 0), {{template "claimed events"}}
{{end}}
