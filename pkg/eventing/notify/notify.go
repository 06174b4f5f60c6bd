// Package notify lets the processes that use one database notify each other of changes, with LISTEN
// and NOTIFY.
//
// A notification is only a hint. It is lost if the connection breaks, and behind a transaction
// pooler no notification arrives at all. So every listener also polls, and a Notifier reports
// whether it receives notifications (Connected). If the URL of a pool sets default_query_exec_mode to
// another mode than cache_statement, a Notifier concludes that the pool connects through a transaction
// pooler. It does not send LISTEN through such a pool, because the LISTEN would stay behind in a server
// session of the pooler. If a server vanishes silently, the connection to it looks like a connection on
// which no other process notifies. So a Notifier that has received nothing for 30 s sends itself a probe.
//
// A writer calls Publish after its transaction. NOTIFY is not part of that transaction, because at
// commit NOTIFY takes a lock that the whole cluster shares. Publish costs the writer only a mutex.
package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// publishEvery is the default of Notifier.Every.
	publishEvery = 5 * time.Millisecond
	// timeout bounds three things: a connection attempt, the sending of a notification, and the
	// wait for a probe to arrive.
	timeout = 5 * time.Second
)

// pauses are the times that tests shorten.
type pauses struct {
	// silence is the time without a notification after which a connection is probed.
	silence time.Duration
	// answer is the longest time from the sending of a probe to its arrival.
	answer time.Duration
	// retry is the pause after a connection has failed.
	retry backoff.Policy
	// noDelivery is the pause after a connection that received nothing, if the notifier connects as the
	// pool does and has never received anything. The likely cause is a pooler, which is permanent, but
	// the cause may also be a short stall.
	noDelivery backoff.Policy
}

var defaultPauses = pauses{
	silence: 30 * time.Second, answer: timeout,
	retry:      backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second},
	noDelivery: backoff.Policy{Base: 20 * time.Minute, Cap: 20 * time.Minute},
}

// errNoDelivery is returned for a connection that accepts LISTEN and receives nothing.
var errNoDelivery = errors.New("notifications do not arrive, as through a transaction pooler")

// errNoSchema is returned if none of the search_path's schemas exists.
var errNoSchema = errors.New("no schema of the search_path exists, have the migrations run?")

// Notifier sends and receives the notifications of one process. Notifiers of the same name and
// schema receive each other's notifications.
type Notifier struct {
	// Every is the least pause between two notifications. It may be changed before Run.
	Every time.Duration

	db        *pgxpool.Pool
	listenURL string
	name, id  string
	log       *slog.Logger
	pauses    pauses
	connected atomic.Bool
	due       chan struct{}

	mu          sync.Mutex
	undelivered Notification
}

// New returns a notifier on the first schema of db's search_path. listenURL is the URL of a
// connection to the same schema that does not go through a transaction pooler. If listenURL is
// empty, the notifier connects for LISTEN as the pool does.
func New(db *pgxpool.Pool, listenURL, name string, log *slog.Logger) *Notifier {
	return &Notifier{
		Every: publishEvery, db: db, listenURL: listenURL, name: name, id: rand.Text(),
		log: log.With("component", "notifier", "notifier", name), pauses: defaultPauses, due: make(chan struct{}, 1),
	}
}

// Connected reports whether this process receives the notifications of the other processes.
func (n *Notifier) Connected() bool { return n.connected.Load() }

// Publish notifies the other processes of keys, usually within a few milliseconds. It never blocks.
// Without Run no notification is sent.
func (n *Notifier) Publish(keys ...string) {
	n.mu.Lock()
	for _, k := range keys {
		n.undelivered.add(k)
	}
	n.mu.Unlock()
	select {
	case n.due <- struct{}{}:
	default: // a notification is due already
	}
}

// Run sends and receives notifications until ctx ends, and then returns nil. It calls onNotify,
// which must not block, with the notifications of the other processes. It also calls onNotify with
// a Notification of everything each time that Connected has changed, because this process does not
// know the notifications that were sent between two connections.
func (n *Notifier) Run(ctx context.Context, onNotify func(Notification)) error {
	var g errgroup.Group
	g.Go(func() error { n.publishLoop(ctx); return nil })
	g.Go(func() error { n.listen(ctx, onNotify); return nil })
	return g.Wait()
}

func (n *Notifier) publishLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.due:
		}
		n.mu.Lock()
		news := n.undelivered
		n.undelivered = Notification{}
		n.mu.Unlock()
		if err := n.send(ctx, news); err != nil && ctx.Err() == nil {
			n.log.DebugContext(ctx, "other instances not notified", "error", err)
		}
		backoff.Sleep(ctx, n.Every, nil)
	}
}

// channel is the SQL expression for the name of the channel. $1 is the name of the Notifier. Postgres
// refuses to notify a channel with a name of more than 63 bytes.
const channel = `$1 || '.' || current_schema()`

// send sends news in a notification. Its commit does not wait for the disk, because a poll finds
// the same change if a crash loses the notification.
func (n *Notifier) send(ctx context.Context, news Notification) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := n.db.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', true), pg_notify(`+channel+`, $2)`,
		n.name, n.id+" "+news.String())
	return err
}
