package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/googleapis/gax-go/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/pkg/eventing/backoff"
)

// The environment of a relay's process.
const (
	childBroker   = "OUTBOX_TEST_BROKER"
	childDatabase = "OUTBOX_TEST_DATABASE"
	childHistory  = "OUTBOX_TEST_HISTORY"
	childByRows   = "OUTBOX_TEST_CLAIM_BY_ROWS"
)

// spawn runs a relay in a process of its own, which a test can kill.
func (h *historyRun) spawn(t *testing.T, byRows bool) *process.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childBroker+"="+h.broker.addr, childDatabase+"="+h.url, childHistory+"="+h.path)
	if byRows {
		cmd.Env = append(cmd.Env, childByRows+"=1")
	}
	p, err := process.Start(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(syscall.SIGKILL, patience) })
	return p
}

// relayProcess relays until it is killed.
func relayProcess() {
	ctx, log := context.Background(), slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	db, err := pgxpool.New(ctx, os.Getenv(childDatabase))
	if err != nil {
		panic(err)
	}
	happened, err := history.Open(os.Getenv(childHistory))
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient(os.Getenv(childBroker), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(recordTo(happened)))
	if err != nil {
		panic(err)
	}
	client, err := pubsub.NewClient(ctx, "test", option.WithGRPCConn(conn))
	if err != nil {
		panic(err)
	}
	if os.Getenv(childByRows) != "" {
		for {
			if err := relayByRows(ctx, db, client); err != nil {
				log.ErrorContext(ctx, "relay by rows", "error", err)
			}
		}
	}
	r := NewRelay(db, client, map[string]string{"video": topic}, log, func() {}, Options{})
	go writeShared(ctx, r, os.Getenv(childDatabase), os.Getenv(childHistory))
	_ = r.Run(ctx)
}

const (
	// endFile ends the writers of the relays' processes. Each of them creates the file with its
	// process id behind the name, when its writers have ended.
	endFile = ".end"
	// handedFile has a byte for each event that a relay was handed over.
	handedFile = ".handed"
)

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// writeShared writes versions of a few aggregates, for which the writers of all processes compete, and
// hands them over. In the full measure it keeps some commits from the relay, as if their answers had been lost.
func writeShared(ctx context.Context, r *Relay, url, path string) {
	db, err := pgxpool.New(ctx, url)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	handed, err := os.OpenFile(path+handedFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer handed.Close()
	forgets := os.Getenv("LOCKSTEP_FULL") != ""
	var writing sync.WaitGroup
	for range 2 {
		writing.Go(func() {
			for !exists(path + endFile) {
				h := r.Handover()
				err := writeNext(ctx, db, h, fmt.Sprint("shared-", rand.IntN(20)))
				switch {
				case err != nil: // a session was ended, or a row is locked: the outcome may be unknown
				case forgets && rand.IntN(1000) == 0: // the relay learns nothing
				case h.Committed():
					_, _ = handed.WriteString(".")
				default:
					r.Wake()
				}
				backoff.Sleep(ctx, time.Duration(rand.IntN(20))*time.Millisecond, nil)
			}
		})
	}
	writing.Wait()
	if err := os.WriteFile(fmt.Sprint(path, endFile, os.Getpid()), nil, 0o600); err != nil {
		panic(err)
	}
}

// writeNext commits the next version of an aggregate. The lock takes the place of the aggregate's row.
func writeNext(ctx context.Context, db *pgxpool.Pool, h *Handover, aggregate string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, aggregate); err != nil {
			return err
		}
		var version int64
		err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM outbox WHERE aggregate_type = 'video' AND aggregate_id = $1`, aggregate).
			Scan(&version)
		if err != nil {
			return err
		}
		return h.Append(ctx, tx, nil, event(aggregate, version+1))
	})
}

// recordTo records each request before it leaves this process, and each acknowledgement
// before the relay gets it.
func recordTo(log *history.Log) grpc.UnaryClientInterceptor {
	process := fmt.Sprint("relay ", os.Getpid())
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		publish, ok := req.(*pubsubpb.PublishRequest)
		if !ok {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		request := uuid.NewString()
		if err := log.Add(messages(history.Send, process, request, publish)...); err != nil {
			return err
		}
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		return log.Add(messages(history.Acknowledge, process, request, publish)...)
	}
}

// relayByRows is the naive relay for comparison: it claims the oldest rows, even if another
// relay has their predecessors.
func relayByRows(ctx context.Context, db *pgxpool.Pool, client *pubsub.Client) error {
	type row struct {
		ID      uuid.UUID
		Key     string
		Version int64
		Payload []byte
	}
	rows, err := db.Query(ctx, `
		WITH cte AS (
			SELECT id FROM outbox
			 WHERE published_at IS NULL AND (next_retry_at IS NULL OR next_retry_at <= now())
			 ORDER BY occurred_at
			 LIMIT 200
			   FOR UPDATE SKIP LOCKED)
		UPDATE outbox o SET lock_token = $1, locked_at = now() FROM cte WHERE o.id = cte.id
		RETURNING o.id, o.aggregate_id, o.version, o.payload`, uuid.NewString())
	if err != nil {
		return err
	}
	claimed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return err
	}
	for _, c := range claimed {
		e := event(c.Key, c.Version)
		e.ID = c.ID
		req := &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{e.Message()}}
		if _, err := client.TopicAdminClient.Publish(ctx, req, gax.WithRetry(nil)); err != nil {
			continue
		}
		_, err := db.Exec(ctx, `UPDATE outbox SET published_at = now(), lock_token = NULL, locked_at = NULL WHERE id = $1`, c.ID)
		if err != nil {
			return err
		}
	}
	backoff.Sleep(ctx, 10*time.Millisecond, nil)
	return nil
}
