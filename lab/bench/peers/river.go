package peers

import (
	"context"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"example.com/lockstep/pkg/eventing"
)

// riverJobs is an outbox that uses River's jobs. The business transaction inserts a job for each
// event, and a worker publishes the event.
type riverJobs struct{}

const (
	riverWorkers = 100
	// riverFetch is the shortest time between two fetches of jobs. River's default is 100 ms.
	riverFetch = time.Millisecond
	// riverJob bounds a job. River's default is a minute.
	riverJob = 5 * time.Second
	// riverRescue is the time after which a job of a dead process is tried again. River's default is an hour.
	riverRescue = 6 * time.Second
)

// publishArgs are a job's arguments.
type publishArgs struct {
	Data       []byte            `json:"data"`
	Attributes map[string]string `json:"attributes"`
	Key        string            `json:"key"`
}

// Kind implements River's arguments.
func (publishArgs) Kind() string { return "publish" }

type publishWorker struct {
	river.WorkerDefaults[publishArgs]

	publisher *pubsub.Publisher
}

// Work implements River's worker.
func (w *publishWorker) Work(ctx context.Context, job *river.Job[publishArgs]) error {
	a := job.Args
	return publishOrdered(ctx, w.publisher, &pubsub.Message{Data: a.Data, Attributes: a.Attributes, OrderingKey: a.Key})
}

// Schema implements [Peer].
func (riverJobs) Schema(ctx context.Context, db *pgxpool.Pool) error {
	m, err := rivermigrate.New(riverpgxv5.New(db), nil)
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// inserter only inserts jobs. It has no database of its own.
var inserter, errInserter = river.NewClient(riverpgxv5.New(nil), &river.Config{})

// Append implements [Peer].
func (riverJobs) Append(ctx context.Context, tx pgx.Tx, events []eventing.Event) error {
	if errInserter != nil {
		return errInserter
	}
	jobs := make([]river.InsertManyParams, len(events))
	for i, e := range events {
		m := e.Message()
		jobs[i].Args = publishArgs{m.GetData(), m.GetAttributes(), m.GetOrderingKey()}
	}
	_, err := inserter.InsertManyFastTx(ctx, tx, jobs)
	return err
}

// NewRelay implements [Peer].
func (riverJobs) NewRelay(db *pgxpool.Pool, client *pubsub.Client) (Relay, error) {
	publisher := orderedPublisher(client, riverWorkers)
	workers := river.NewWorkers()
	river.AddWorker(workers, &publishWorker{publisher: publisher})
	c, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:       workers,
		FetchCooldown: riverFetch, FetchPollInterval: 10 * riverFetch,
		JobTimeout: riverJob, RescueStuckJobsAfter: riverRescue,
	})
	return &riverRelay{unaware: unaware{riverJobs{}}, client: c, publisher: publisher}, err
}

type riverRelay struct {
	unaware

	client    *river.Client[pgx.Tx]
	publisher *pubsub.Publisher
}

// Run implements [Relay].
func (r *riverRelay) Run(ctx context.Context) error {
	defer r.publisher.Stop()
	if err := r.client.Start(ctx); err != nil {
		return err
	}
	<-r.client.Stopped()
	return nil
}
