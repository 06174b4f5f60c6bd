// Package peers compares our outbox with other libraries that a Go service could use instead. All
// libraries have the same events, Postgres, broker and cores. Each library is used as its own
// documentation recommends. Its polling intervals are tuned in its favour.
//
// The writer appends events in its transactions. As in a service, the relay runs in the same
// process as the writer. A relay that will be killed runs in its own process. The broker is a stub
// that takes a given time for each request. It records the events that it has received, and their
// order.
//
// A peer is one file with a type that implements [Peer], and a line in all.
package peers

import (
	"context"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
)

// Peer is an outbox made with one library.
type Peer interface {
	// Schema creates the peer's tables in the schema that db's search_path finds.
	Schema(ctx context.Context, db *pgxpool.Pool) error
	// Append writes events within the caller's transaction.
	Append(ctx context.Context, tx pgx.Tx, events []eventing.Event) error
	// NewRelay returns a relay that publishes the appended events. The ordering key of an event is
	// its aggregate.
	NewRelay(db *pgxpool.Pool, client *pubsub.Client) (Relay, error)
}

// Relay publishes events.
type Relay interface {
	// Run publishes until ctx ends.
	Run(ctx context.Context) error
	// Commit commits an event in a transaction of its own, in the process of the relay. It calls
	// committed when COMMIT is answered, before the relay learns of the commit.
	Commit(ctx context.Context, db *pgxpool.Pool, e eventing.Event, committed func()) error
}

// unaware is embedded in a relay that finds commits by itself.
type unaware struct{ Peer }

// Commit implements [Relay].
func (u unaware) Commit(ctx context.Context, db *pgxpool.Pool, e eventing.Event, committed func()) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return u.Append(ctx, tx, []eventing.Event{e}) })
	if err == nil {
		committed()
	}
	return err
}

// entry is a peer in the table.
type entry struct {
	name, title string
	peer        Peer
	// ordered is true if the peer keeps the order of each key, even after a kill. A run checks
	// this. We compare ourselves only with such peers.
	ordered bool
	remark  string
}

// ours is the name of our own outbox in the table.
const ours = "lockstep"

var all = []entry{
	{ours, "this repository", lockstep{}, true, "any number of relays"},
	{"watermill", "watermill 1.5.1, watermill-sql 4.1.2", watermillSQL{defaultSchema}, true,
		"Forwarder; one message after the other, in one process at a time"},
	{"watermill_queue", "watermill 1.5.1, watermill-sql 4.1.2, queue schema", watermillSQL{queueSchema}, true,
		"Forwarder; one message after the other, in one process at a time"},
	{"river", "River 0.51.1", riverJobs{}, false, "a job an event, 100 workers; keeps no order"},
}

func find(name string) (entry, bool) {
	for _, e := range all {
		if e.name == name {
			return e, true
		}
	}
	return entry{}, false
}
