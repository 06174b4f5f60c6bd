package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/pkg/eventing"
)

// The environment of a victim: a consumer's process that one of the events kills. Each
// process gets all events again, as from a broker after the leases of the process before it
// have expired.
const (
	victimDatabase = "LOCKSTEP_TEST_VICTIM_DATABASE"
	victimBroker   = "LOCKSTEP_TEST_VICTIM_BROKER"
	// victimAttempt is the broker's count of deliveries; empty if it does not
	// count.
	victimAttempt = "LOCKSTEP_TEST_VICTIM_ATTEMPT"
	killed        = 3
	victimEvents  = 200
)

func victimEvent(i int) eventing.Event {
	e := event(fmt.Sprint("a", i), 1)
	e.ID = uuid.NewSHA1(uuid.NameSpaceURL, []byte(e.AggregateID))
	return e
}

var killer = victimEvent(victimEvents / 2)

func victim() int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := victimRun(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func victimRun(ctx context.Context) error {
	conn, err := grpc.NewClient(os.Getenv(victimBroker), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	client, err := pubsub.NewClient(ctx, "test", option.WithGRPCConn(conn))
	if err != nil {
		return err
	}
	db, err := pgxpool.New(ctx, os.Getenv(victimDatabase))
	if err != nil {
		return err
	}
	b := &bench{db: db, client: client}
	b.spoil = func(e eventing.Event) error {
		if e.ID == killer.ID {
			os.Exit(killed)
		}
		return nil
	}
	first, end := 0, victimEvents
	if n, err := strconv.Atoi(os.Getenv(victimFreezes)); err == nil {
		b.spoil = freezing(n)
		first, end = victimEvents/2, victimEvents/2+1 // the event that kills, alone
	}
	h := b.handler(decode)
	c := NewConsumer(db, client, subscription, h, slog.New(slog.DiscardHandler), func() {}, Options{})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return c.RunFrom(ctx, func(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
		defer stop()
		for i := first; i < end; i++ {
			deliver(ctx, victimMessage(i))
		}
		return untilSettled(ctx, db, end-first)
	})
}

func victimMessage(i int) *pubsub.Message {
	m := victimEvent(i).Message()
	message := &pubsub.Message{ID: fmt.Sprint(i), Data: m.Data, Attributes: m.Attributes, PublishTime: time.Now()}
	var attempt int
	if n, _ := fmt.Sscan(os.Getenv(victimAttempt), &attempt); n == 1 {
		message.DeliveryAttempt = &attempt
	}
	return message
}

func untilSettled(ctx context.Context, db *pgxpool.Pool, all int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		err := db.QueryRow(ctx, `SELECT count(*) FROM inbox WHERE status IN ('done', 'dead')`).Scan(&n)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) || n == all {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestAnEventThatKillsTheProcessIsDeadLettered(t *testing.T) {
	t.Parallel()
	for name, counts := range map[string]bool{"the broker counts deliveries": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			deaths := 0
			for ; ; deaths++ {
				if deaths > 2*maxStarts {
					t.Fatalf("the process died %d times", deaths)
				}
				attempt := ""
				if counts {
					attempt = fmt.Sprint(deaths + 1)
				}
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), victimDatabase+"="+b.pg.URL, victimBroker+"="+b.server.Addr, victimAttempt+"="+attempt)
				out, err := cmd.CombinedOutput()
				if err == nil {
					break
				}
				if cmd.ProcessState.ExitCode() != killed {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			if deaths != 1+maxStarts {
				t.Errorf("the process died %d times, want %d: once unawares, then %d times counted", deaths, 1+maxStarts, maxStarts)
			}
			dead := b.deadLettered("")
			if len(dead) != 1 || dead[0].Attributes[eventing.AttrEventID] != killer.ID.String() ||
				!strings.Contains(dead[0].Attributes[AttrDeadLetterReason], "the process ended 3 times") {
				t.Errorf("dead letters %v, want the killer with its reason", dead)
			}
			if n := b.count(t, `SELECT count(*) FROM model WHERE effects = 1`); n != victimEvents-1 {
				t.Errorf("%d of %d innocent events had their effect", n, victimEvents-1)
			}
			if n := b.count(t, `SELECT count(*) FROM inbox WHERE attempts > 0 OR status = 'done' AND begun > 0`); n != 0 {
				t.Errorf("%d events have a count against them that is not theirs", n)
			}
			if n := b.count(t, `SELECT count(*) FROM inbox_runs`); (n > 0) != (deaths > 0) {
				t.Errorf("%d runs are remembered", n)
			}
		})
	}
}

// A message that is given back leaves no recorded start, however often: it is not taken for
// the cause of a crash.
func TestGivingBackUnmarksTheStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := event("a", 2) // a gap, and the owner is unavailable
	for range 3 * maxStarts {
		c := b.consumer(t)
		d := delivered(e)
		d.messages[0].DeliveryAttempt = new(2)
		ctx, end := context.WithCancel(t.Context())
		left := c.process(ctx, []*delivery{d})
		end()
		c.shutDown(ctx, append(left, c.blocked.all()...))
		c.metrics.unregister()
	}
	if n := b.count(t, `SELECT begun FROM inbox WHERE event_id = $1`, e.ID); n != 0 {
		t.Errorf("begun = %d", n)
	}
	if dead := b.deadLettered(""); len(dead) != 0 {
		t.Errorf("%d dead letters", len(dead))
	}
}
