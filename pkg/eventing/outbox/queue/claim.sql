{{/* The statements that claim, and their parts. $1 is the claimant, $2 the time of a lease, $3 the
   types to skip, $4, $5, $6 and $7 are the limits of heads, events, versions and bytes, $8 are the
   living relays, and $9 is the longest time before a retry.

   All claims end alike: candidates, which are the places of rows that may be heads of
   their aggregates, become heads, events and a lease.

   A head is claimed by its row's lock, so that one of two relays skips it. A row is a head
   only if the version before it is published or gone. A lease and a retry time from the
   future count as none: the database's clock has been set back. A lease from the future is
   after clock_timestamp(): now() is the claim's begin, and a claim may last for seconds, in
   which others take leases. */}}
{{define "no lease"}}
		       (o.locked_at IS NULL OR o.locked_at <= now() - $2::interval OR o.locked_at > clock_timestamp() + interval '1 second')
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

{{/* The oldest row of each aggregate among some rows. */}}
{{define "candidates"}}
	SELECT DISTINCT ON (r.aggregate_type, r.aggregate_id) r.place
	  FROM ({{.}}) r
	 ORDER BY r.aggregate_type, r.aggregate_id, r.version
{{end}}

{{/* The pending event that comes next after done. A part of a batch may be
   settled again after all of it has been: then published ones come between. */}}
{{define "next pending"}}
		SELECT o.ctid AS place, o.id, o.aggregate_type, o.aggregate_id, o.version
		  FROM outbox o
		 WHERE o.aggregate_type = done.aggregate_type AND o.aggregate_id = done.aggregate_id AND o.version > done.version
		   AND o.published_at IS NULL
		 ORDER BY o.version
		 LIMIT 1
{{end}}

{{/* The window function orders its rows: a batch that is cut short must lose its end.

   passed are the heads that the claim had to skip although no living relay answers for
   them: another session has locked the row, or the lease is that of a relay that is not
   alive; then until is when it ends. */}}
{{define "claim candidates"}}
, head AS MATERIALIZED (
	SELECT o.place, o.id, o.aggregate_type, o.aggregate_id, o.version
	  FROM candidate c
	 CROSS JOIN LATERAL (
		SELECT o.ctid AS place, o.id, o.aggregate_type, o.aggregate_id, o.version
		  FROM outbox o
		 WHERE o.ctid = c.place
		   AND {{template "no lease"}}
		   AND {{template "is head"}}
		   FOR UPDATE SKIP LOCKED) o
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
		SELECT o.locked_at + $2::interval AS until
		  FROM outbox o
		 WHERE o.ctid = c.place
		   AND (o.lock_token IS NULL OR o.locked_at <= now() - $2::interval OR o.locked_at > clock_timestamp() + interval '1 second'
		        OR o.lock_token <> ALL($8::text[]))
		   AND {{template "is head"}}) o
), report AS (
	SELECT pg_current_snapshot()::text AS seen, (SELECT count(*) FROM head) AS heads, (SELECT count(*) FROM passed) AS passed,
	       coalesce((SELECT extract(epoch FROM max(until) - now())::float8
	                   FROM passed WHERE until > now() AND until <= now() + $2::interval), 0) AS until
)
{{end}}

{{define "report"}}
SELECT report.seen, report.heads, report.passed, report.until
{{end}}

{{/* An event's columns are null when nothing was claimed: the report is needed all the same. */}}
{{define "claimed events"}}
{{columns "e"}}
  FROM report
  LEFT JOIN fits e ON true
 ORDER BY e.head, e.version
{{end}}

{{/* Rows that were restored from another cluster may have transaction ids beyond the present
   snapshot's. They would be new at each claim, so only a scan finds them. The ids of open
   transactions are looked up as ranges, in the index's order: for an equal id the planner
   may expect many rows, by the table's statistics, and read the whole table.

   The rows of tenants to skip count against the limit of rows, so that a tenant's million
   rows cost one claim no more than that. */}}
{{define "claim new events"}}
WITH fresh AS MATERIALIZED (
	(SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.tenant_id
	   FROM outbox o
	  WHERE o.published_at IS NULL
	    AND o.xact >= pg_snapshot_xmax($10::text::pg_snapshot) AND o.xact < pg_snapshot_xmax(pg_current_snapshot())
	  ORDER BY o.xact, uuid_send(o.id)
	  LIMIT $11)
	UNION ALL
	(SELECT o.place, o.aggregate_type, o.aggregate_id, o.version, o.tenant_id
	   FROM pg_snapshot_xip($10::text::pg_snapshot) AS open(xact)
	  CROSS JOIN LATERAL (
		SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.tenant_id
		  FROM outbox o
		 WHERE o.published_at IS NULL AND o.xact >= open.xact AND o.xact <= open.xact
		 ORDER BY o.xact, uuid_send(o.id)
		 LIMIT $11) o
	  LIMIT $11)
), next AS (
	SELECT o.place, o.aggregate_type, o.aggregate_id, o.version
	  FROM unnest($12::text[], $13::text[], $14::bigint[]) AS done(aggregate_type, aggregate_id, version)
	 CROSS JOIN LATERAL ({{template "next pending"}}) o
), candidate AS ({{template "candidates" `SELECT place, aggregate_type, aggregate_id, version
	         FROM fresh WHERE tenant_id <> ALL($15::text[])
	        UNION ALL
	        SELECT place, aggregate_type, aggregate_id, version FROM next`}}
){{template "claim candidates"}}{{template "report"}}, (SELECT count(*) FROM fresh), {{template "claimed events"}}
{{end}}

{{/* A page of a scan has $13 rows, in the order of their transactions. Published rows count:
   so the size of the page bounds its cost. */}}
{{define "claim a page"}}
WITH page AS MATERIALIZED (
	SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.xact, o.id,
	       o.published_at IS NULL AND o.parked_at IS NULL AND (o.next_retry_at IS NULL OR NOT $14::boolean)
	       AND o.tenant_id <> ALL($15::text[]) AND ($16::text[] IS NULL OR o.tenant_id = ANY($16::text[])) AS pending
	  FROM outbox o
	 WHERE (o.xact, uuid_send(o.id)) > ($10::text::xid8, uuid_send($11::uuid)) AND o.xact <= $12::text::xid8
	 ORDER BY o.xact, uuid_send(o.id)
	 LIMIT $13
), last AS (
	SELECT count(*) AS rows, (array_agg(xact ORDER BY xact DESC, id DESC))[1] AS xact,
	       (array_agg(id ORDER BY xact DESC, id DESC))[1] AS id
	  FROM page
), candidate AS ({{template "candidates" `SELECT place, aggregate_type, aggregate_id, version FROM page WHERE pending`}}
){{template "claim candidates"}}{{template "report"}}, (SELECT rows FROM last), (SELECT xact::text FROM last), (SELECT id FROM last), {{template "claimed events"}}
{{end}}

{{/* Both ends of the index: rows that are due, and rows whose time is too far ahead,
   because the clock was set back. Candidates come in the order of their times: of more
   than a claim takes, each has its turn before another one has its second. */}}
{{define "claim retries"}}
WITH due AS MATERIALIZED (
	(SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.next_retry_at
	   FROM outbox o
	  WHERE o.next_retry_at <= now() AND o.published_at IS NULL AND o.parked_at IS NULL AND o.aggregate_type <> ALL($3::text[])
	    AND {{template "no lease"}}
	  ORDER BY o.next_retry_at
	  LIMIT $10)
	UNION ALL
	(SELECT o.ctid AS place, o.aggregate_type, o.aggregate_id, o.version, o.next_retry_at
	   FROM outbox o
	  WHERE o.next_retry_at > now() + $9::interval AND o.published_at IS NULL AND o.parked_at IS NULL AND o.aggregate_type <> ALL($3::text[])
	    AND {{template "no lease"}}
	  ORDER BY o.next_retry_at
	  LIMIT $10)
), candidate AS (
	SELECT d.place
	  FROM (SELECT DISTINCT ON (r.aggregate_type, r.aggregate_id) r.place, r.next_retry_at
	          FROM due r
	         ORDER BY r.aggregate_type, r.aggregate_id, r.version) d
	 ORDER BY d.next_retry_at
){{template "claim candidates"}}{{template "report"}},
       coalesce((SELECT extract(epoch FROM o.next_retry_at - now())::float8
                   FROM outbox o
                  WHERE o.next_retry_at > now() AND o.published_at IS NULL AND o.parked_at IS NULL AND o.aggregate_type <> ALL($3::text[])
                  ORDER BY o.next_retry_at LIMIT 1), 0), {{template "claimed events"}}
{{end}}
