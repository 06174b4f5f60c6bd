// Package migrate ships the tables of pkg/eventing as versioned migrations, and brings a service's
// schema up to date with them and with the service's own migrations.
//
// # Parts
//
// [Outbox] is for a service that owns events, and [Inbox] is for a service that consumes events.
// [Operator] is for the operator commands of both. Each schema also gets the service's role, with
// the settings that the library relies on. A service lists the parts that it uses and copies no
// SQL:
//
//	//go:embed sql/*.sql
//	var own embed.FS
//
//	var Orders = migrate.Schema{
//		Name: "orders", Role: "orders_service",
//		Parts: []embed.FS{migrate.Outbox, migrate.Operator}, Own: own,
//	}
//
// All migrations of a schema are one sequence of goose, recorded in the schema's table
// goose_db_version. The SQL of the library names no schema and no role. While the SQL runs,
// search_path is the schema alone. The setting eventing.role is the service's role. The setting
// eventing.request_role is the role of the service's requests, or empty. A migration grants the
// service's role the rights that the library's code needs, and no more. A service that made these
// grants itself would have to know the library's statements. A service may use the two settings
// eventing.role and eventing.request_role in its own migrations.
//
// # Numbers
//
//	  1 …   99  the history of schemas that are older than this rule
//	100 …  999  the library: 1xx role, 2xx outbox, 3xx inbox, 4xx operator
//	1000 …      the service's own
//
// So a new schema gets the library's tables before the service's own tables. A later release of the
// library brings a migration whose number is below numbers that the service has applied already.
// [Schema.Up] applies that migration nevertheless, and [Schema.Check] compares the set of numbers
// and not the highest number. So a migration of the library may run before or after migrations of
// the service, and both orders must have the same result. Therefore a migration of the library
// touches only the library's tables, and a migration of a service never touches the library's
// tables.
//
// An older schema has some of the library's migrations under numbers of its own. The schema names
// these migrations in [Schema.Earlier], and they keep these numbers.
//
// Up records the names of its files in the table migration_files, before it applies them. So it notices that a number has another file than
// before: both forks of a repository, or a fork and its origin, have taken the number. Up then returns [ErrReplaced], with both names.
// The first release with that table records the names that it has itself, for all numbers that were applied before. Up
// compares no contents, because comments and the ends of lines may change. If only the name of a file has to change, change
// its row, too: UPDATE migration_files SET file = '01007_name.sql' WHERE number = 1007.
//
// A migration that was released is never edited. If a release changes the schema, it only adds what
// is new. The next release removes what is old, because an older binary runs on the newer schema
// during a rollout and after a rollback.
//
// # A service that has tables already
//
// Such a service has a role, a pool, migrations and tables in the schema public. It keeps them. The library's
// tables are in a schema of their own, with a role of their own, and the service's role is a member of that role:
//
//	var Events = migrate.Schema{Name: "events", Role: "orders_events", Parts: []embed.FS{migrate.Outbox}, Own: rights}
//
//	-- in rights, 01000_rights.sql
//	GRANT orders_events TO orders_app;
//
// A member has the rights of its role, and none of the settings: Postgres applies the settings of a role only to
// the sessions that connect as this role. So Up changes no setting of orders_app. Its sessions find the tables by
// a search_path such as "public, events", which the service sets for its pool. Relay and consumer have a pool of
// their own, of the same URL, with the settings that the library relies on ([Schema.Configure]). The service's own
// migrations go on with their table of versions in public. The schema of the library is not public itself, because
// goose_db_version would then be one table with two histories.
//
// # Locks
//
// A statement such as ALTER TABLE needs its table for itself. While it waits for a transaction that
// reads the table, all writes of the table wait behind it. A txn.Writer tries a write for two seconds.
// So a new migration waits for less: it says SET LOCAL lock_timeout = '1500ms' before such a
// statement. After a second of waiting Postgres ends an autovacuum that is in the way. If the lock
// does not come, the migration fails and no write does. Up then says that a transaction has to end.
// Released migrations wait for two seconds, so that writes may fail while one of them waits.
//
// A migration keeps its locks for three round trips to the database after its last statement, and for one after each
// statement before that. With a database 100 ms away or more, writes may fail meanwhile. Run Up near such a database.
package migrate
