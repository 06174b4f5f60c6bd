package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
)

// fixture is a peer with its tables in an unused database, and with a broker.
type fixture struct {
	entry

	database *rig.Database
	db       *pgxpool.Pool
	broker   *broker
}

// open returns a fixture without a relay. The caller must close it.
func open(ctx context.Context, p *rig.Postgres, e entry, delay time.Duration) (_ *fixture, err error) {
	f := &fixture{entry: e}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(ctx))
		}
	}()
	// A template has the tables of each peer, so that every run begins with empty tables.
	if f.database, err = p.CopyOf(ctx, "peer "+e.name, e.tables); err != nil {
		return nil, err
	}
	if f.db, err = f.database.Pool(ctx, rig.Committers); err != nil {
		return nil, err
	}
	f.broker, err = startBroker(ctx, delay)
	return f, err
}

// tables creates the tables of the peer next to the tables of the video service. It lets the role
// of the video service use them.
func (e entry) tables(ctx context.Context, conn *pgx.Conn) error {
	cfg, err := pgxpool.ParseConfig(conn.Config().ConnString())
	if err != nil {
		return err
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := e.peer.Schema(ctx, db); err != nil {
		return err
	}
	_, err = db.Exec(ctx, `GRANT ALL ON ALL TABLES IN SCHEMA `+schema+` TO video_service;
		GRANT ALL ON ALL SEQUENCES IN SCHEMA `+schema+` TO video_service`)
	return err
}

// schema is the schema of the video service.
const schema = "video"

// Close drops the database.
func (f *fixture) Close(ctx context.Context) error {
	if f.broker != nil {
		f.broker.server.Stop()
	}
	if f.db != nil {
		f.db.Close()
	}
	if f.database != nil {
		return f.database.Drop(ctx)
	}
	return nil
}

// fill appends the given number of versions of the given number of aggregates, and tells the broker
// to expect these events. A transaction appends one version of some of the aggregates.
func (f *fixture) fill(ctx context.Context, aggregates, versions int) error {
	const together = 100
	f.broker.expect(aggregates * versions)
	ids := make([]uuid.UUID, aggregates)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	for v := range versions {
		for some := range slices.Chunk(ids, together) {
			events := make([]eventing.Event, len(some))
			for i, id := range some {
				events[i] = version(id, v+1)
			}
			if err := f.commit(ctx, events...); err != nil {
				return err
			}
		}
	}
	return nil
}

func version(id uuid.UUID, v int) eventing.Event {
	e := rig.VideoCreated(id, time.Now().UTC())
	e.Version = int64(v)
	return e
}

func (f *fixture) commit(ctx context.Context, events ...eventing.Event) error {
	return pgx.BeginFunc(ctx, f.db, func(tx pgx.Tx) error { return f.peer.Append(ctx, tx, events) })
}

// running is a relay that runs in this process.
type running struct {
	Relay

	stop       context.CancelFunc
	ended      chan error
	db         *pgxpool.Pool
	client     *pubsub.Client
	statements rig.Statements
}

// start starts a relay that has its own connections.
func (f *fixture) start(ctx context.Context) (*running, error) {
	r := &running{ended: make(chan error, 1)}
	var err error
	if r.db, err = f.database.TracedPool(ctx, rig.ServiceConns, &r.statements); err != nil {
		return nil, err
	}
	if r.client, err = rig.DialBroker(ctx, f.broker.addr); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if r.Relay, err = f.peer.NewRelay(r.db, r.client); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	ctx, r.stop = context.WithCancel(ctx)
	go func() { r.ended <- r.Run(ctx) }()
	return r, nil
}

// Close stops the relay, and returns after the relay has ended.
func (r *running) Close() error {
	var err error
	if r.stop != nil {
		r.stop()
		err = <-r.ended
	}
	if r.client != nil {
		_ = r.client.Close() // some relays have closed it
	}
	r.db.Close()
	return err
}

// Command is the argument with which this binary calls [Serve].
const Command = "peer"

// Serve runs a relay of the peer args[0] on the database args[1] and the broker args[2], until ctx
// ends. A measurement kills this process.
func Serve(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 3 {
		return errors.New(Command + ": a name, a database and a broker are wanted")
	}
	e, ok := find(args[0])
	if !ok {
		return fmt.Errorf("%s: no peer is called %q", Command, args[0])
	}
	db, err := pgxpool.New(ctx, args[1]+"&pool_max_conns="+strconv.Itoa(rig.ServiceConns))
	if err != nil {
		return err
	}
	defer db.Close()
	client, err := rig.DialBroker(ctx, args[2])
	if err != nil {
		return err
	}
	defer client.Close()
	relay, err := e.peer.NewRelay(db, client)
	if err != nil {
		return err
	}
	rig.Ready(stdout, "none", 1)
	return relay.Run(ctx)
}

// commits records the time at which the commit of each event returned.
type commits struct {
	mu sync.Mutex
	at map[string]time.Time // by aggregate, of which each has one event
}

func (c *commits) note(key string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[key] = now
}

// took returns the time from each commit to the broker's answer.
func (c *commits) took(b *broker) (all []time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.at)) {
		answered := b.answered(key, 1)
		if answered.IsZero() {
			return nil, fmt.Errorf("the event of %s was not published", key)
		}
		all = append(all, max(0, answered.Sub(c.at[key])))
	}
	return all, nil
}
