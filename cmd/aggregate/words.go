package main

import "strings"

// initialisms are the words that Go names have in capitals.
var initialisms = strings.Fields(`api cpu css dns eof guid html
	 http https id ip json rpc sql ssh tcp tls ttl udp ui uid uri url utf8 uuid vm xml`)

// takenNames are names that the code around an aggregate uses already. They are packages and
// variables in the edited files, tables of the library, and responses of the OpenAPI documents.
var takenNames = strings.Fields(`aggregate replication events event outbox inbox canary consistency eventing projection
	lag source row page query answer service services guard router log health writer db wake server client auth problem rest serve grpc
	uuid pgx pgxpool slices maps fmt errors strings time context cmp http chi proto tenant tenants reconcile rebuild backfill epoch epochs
	audit checkpoint connect migrations idempotency erasure operator config requirement waiters projector parent positioned status
	relay main handler failed unexpected unauthenticated denied busy unavailable`)

// takenFields are the names that a new field cannot have. They are the fields, columns and methods
// of every aggregate, the columns that Postgres adds to each table, and a column of catalog's
// pages.
var takenFields = strings.Fields(`id user user_id version epoch created_at updated_at deleted_at applied_at occurred_at
	last_event last_event_id tenant tenant_id revision incomplete completeness versioned after consistency_token expected_version update_mask
	page_size page_token
	next_page_token source stale event event_id position token exists next tombstone check check_version arguments path collection
	present reached ctid tableoid xmin xmax cmin cmax`)
