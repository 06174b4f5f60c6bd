package main

import (
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// initialisms are the words that Go names have in capitals.
var initialisms = strings.Fields(`api cpu css dns eof guid html
	 http https id ip json rpc sql ssh tcp tls ttl udp ui uid uri url utf8 uuid vm xml`)

// reservedSQL are the words that cannot be the name of a column without quotes. They are the
// reserved words of Postgres, and the words that Postgres reserves for types and functions.
var reservedSQL = strings.Fields(`all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate
	collation column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
	current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from full grant
	group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime localtimestamp
	natural not notnull null offset on only or order outer overlaps placing primary references returning right select session_user
	similar some symmetric system_user table tablesample then to trailing true union unique user using variadic verbose when where
	window with values`)

// reservedProto are the words that have a meaning in a protobuf file, and the names of the methods
// of each generated message.
var reservedProto = strings.Fields(`syntax import weak public package option repeated optional required group oneof map extensions
	reserved to max enum message extend service rpc stream returns double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64
	sfixed32 sfixed64 bool string bytes reset proto_message proto_reflect descriptor marshal unmarshal inf nan`)

// takenNames are names that the code around an aggregate uses already. They are packages and
// variables in the edited files, and tables of the library.
var takenNames = strings.Fields(`aggregate replication events event outbox inbox canary consistency eventing projection
	lag source row page query answer service services guard router log health writer db wake server client auth problem rest serve grpc
	uuid pgx pgxpool slices maps fmt errors strings time context cmp http chi proto tenant tenants reconcile rebuild backfill epoch epochs
	audit checkpoint connect migrations idempotency erasure operator config requirement waiters projector parent positioned status
	relay main handler`)

// takenFields are the names that a new field cannot have. They are the fields, columns and methods
// of every aggregate, the columns that Postgres adds to each table, and a column of catalog's
// pages.
var takenFields = strings.Fields(`id user user_id version epoch created_at updated_at deleted_at applied_at occurred_at
	last_event last_event_id tenant tenant_id revision incomplete completeness after consistency_token expected_version update_mask
	page_size page_token
	next_page_token source stale event event_id position token exists next tombstone check check_version arguments path collection
	present reached ctid tableoid xmin xmax cmin cmax`)

// reserved reports whether a word is a keyword of Go, SQL or protobuf, or a predeclared name of Go.
func reserved(word string) bool {
	return token.IsKeyword(word) || types.Universe.Lookup(word) != nil ||
		slices.Contains(reservedSQL, word) || slices.Contains(reservedProto, word)
}
