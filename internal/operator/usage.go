package operator

import _ "embed"

// The help of each tool, as `TOOL help` prints it.
var (
	//go:embed usage/outbox.txt
	outboxUsage string
	//go:embed usage/epoch.txt
	epochUsage string
	//go:embed usage/events_owner.txt
	ownerEventsUsage string
	//go:embed usage/erase_owner.txt
	ownerEraseUsage string

	//go:embed usage/dlq.txt
	deadLettersUsage string
	//go:embed usage/offset.txt
	offsetUsage string
	//go:embed usage/reconcile.txt
	reconcileUsage string
	//go:embed usage/backfill.txt
	backfillUsage string
	//go:embed usage/rebuild.txt
	rebuildUsage string
	//go:embed usage/events_reader.txt
	readerEventsUsage string
	//go:embed usage/erase_reader.txt
	readerEraseUsage string
)
