package queue

import (
	"embed"
	"strings"
	"text/template"
)

// statements has the SQL templates, which share parts. Each template is executed once, at the
// start. Values of callers are only passed as parameters of the statements.
//
//go:embed claim.sql settle.sql purge.sql
var statements embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"columns": columns}).ParseFS(statements, "*.sql"))

var (
	claimNewEvents    = statement("claim new events")
	claimPage         = statement("claim a page")
	claimRetries      = statement("claim retries")
	settle            = statement("settle")
	settleAroundLocks = statement("settle around locks")
	renew             = statement("renew")
	takePurgePages    = statement("take pages to purge")
	purge             = statement("purge")
)

func statement(name string) string {
	var sql strings.Builder
	if err := templates.ExecuteTemplate(&sql, name, nil); err != nil {
		panic(err) //nolint:forbidigo // the templates are part of the program, and each start executes them all
	}
	return sql.String()
}

// columns returns the columns of an event for the table alias t, in the order that readEvents
// expects.
func columns(t string) string {
	return strings.ReplaceAll(`t.id, t.aggregate_type, t.aggregate_id, t.event_type, t.version, t.schema_version,
	       t.payload, t.occurred_at, t.tenant_id, t.epoch, t.traceparent, t.publish_attempts,
	       t.previous_event_id, t.next_retry_at`, "t.", t+".")
}
