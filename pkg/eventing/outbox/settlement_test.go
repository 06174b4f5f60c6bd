package outbox

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// settleAll settles results, and returns when they are written.
func (r *Relay) settleAll(t *testing.T, l ...publishResult) {
	t.Helper()
	results := make(chan publishResult, len(l))
	for _, result := range l {
		results <- result
	}
	close(results)
	r.settleLoop(t.Context(), t.Context(), results)
}

// lock locks the row of a version in a transaction of its own, until release.
func (b *bench) lock(t *testing.T, aggregate string, version int64) (release func()) {
	t.Helper()
	tx := pgtest.Begin(t, b.db)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	pgtest.Exec(t, tx, `SELECT FROM outbox WHERE aggregate_id = $1 AND version = $2 FOR UPDATE`, aggregate, version)
	return func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// TestALockedRowHoldsUpItsAggregateOnly locks a row that is not even a head, and
// then one that is, while their events are on their way to the broker.
func TestALockedRowHoldsUpItsAggregateOnly(t *testing.T) {
	t.Parallel()
	for _, version := range []int64{1, 2} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.append(t, "held", 1, 2)
			b.appendEach(t, "a", 20)
			inFlight, goOn := make(chan struct{}, 100), make(chan struct{})
			b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, send func(context.Context) error) error {
				inFlight <- struct{}{}
				<-goOn
				return send(ctx)
			})
			r := b.start(t)
			for range 21 {
				<-inFlight
			}
			release := b.lock(t, "held", version)
			close(goOn)
			b.eventually(t, 0, unpublished+` AND aggregate_id <> 'held'`)
			// Its lease is kept, as far as that can be, for as long as the lock lasts.
			if version == 2 {
				b.age(t, r)
				b.eventually(t, 1, `SELECT count(*) FROM outbox WHERE locked_at > now() - interval '5 s'`)
			}
			release()
			b.eventually(t, 0, unpublished)
			for i := range 20 {
				if got := b.sent(fmt.Sprintf("a%03d", i)); !slices.Equal(got, []int64{1}) {
					t.Errorf("with a locked row, sent %v", got)
				}
			}
			if got := b.sent("held"); !slices.Equal(got, []int64{1, 2}) {
				t.Errorf("sent %v of the aggregate with the locked row", got)
			}
		})
	}
}

// age makes the relay's leases look half over.
func (b *bench) age(t *testing.T, r *Relay) {
	t.Helper()
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '10 s' WHERE lock_token IS NOT NULL`)
	r.inFlight.mu.Lock()
	defer r.inFlight.mu.Unlock()
	for _, h := range r.inFlight.batches {
		h.extend(time.Now().Add(10 * time.Second))
	}
}

// newSlowBench has a database that takes 20 ms for each mark, and ends relays' statements
// after 300: in place of slower marks and the statement's own limit of some seconds.
func newSlowBench(t *testing.T) *bench {
	t.Helper()
	pg := pgtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	pgtest.Exec(t, admin, `
		CREATE FUNCTION app.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$;
		CREATE TRIGGER slow BEFORE UPDATE ON app.outbox FOR EACH ROW
		  WHEN (OLD.published_at IS NULL AND NEW.published_at IS NOT NULL) EXECUTE FUNCTION app.slow()`)
	b := newBenchOn(t, pg)
	b.relayDB = pg.Pool(t, pg.URL+"&statement_timeout=300")
	return b
}

// Marking takes so long that the results that arrive together do not fit into one
// statement's time.
func TestASlowDatabaseIsAskedForLess(t *testing.T) {
	t.Parallel()
	const aggregates, versions = 30, 3
	b := newSlowBench(t)
	for i := range aggregates {
		b.append(t, fmt.Sprint("a", i), 1, versions)
	}
	r := b.start(t)
	b.poll(t, func() bool {
		return b.count(t, unpublished) == 0 || len(b.server.Messages()) > aggregates*versions
	}, "the events are not marked")
	for i := range aggregates {
		if got := b.sent(fmt.Sprint("a", i)); len(got) != versions {
			t.Errorf("sent %v, want each version once", got)
		}
	}
	if n := b.count(t, leased); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	b.poll(t, func() bool { return r.inFlight.total() == 0 }, "the relay still holds what it has marked")
}

// TestABatchThatIsTooLargeIsMarkedInParts is the same for one aggregate.
func TestABatchThatIsTooLargeIsMarkedInParts(t *testing.T) {
	t.Parallel()
	const versions = 40
	b := newSlowBench(t)
	b.append(t, "a", 1, versions)
	b.relay(t, 1)
	b.eventually(t, 0, unpublished)
	firstSightings(t, b.sent("a"), versions)
}

// Neither the publish nor the statements of a cancelled relay get an answer. The platform
// kills the process 10 s after the signal, of which the server takes 6. The relay's bounds
// are shorter here, so that on a busy machine, too, it ends before a statement that has no
// other bound than its own.
func TestADrainEndsAlthoughTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	direct := pg.Pool(t, pg.URL)
	gate := newGate(t, &pg.URL)
	b := newBenchOn(t, pg)
	b.append(t, "a", 1, 1)
	inFlight := make(chan struct{}, 2)
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, _ func(context.Context) error) error {
		inFlight <- struct{}{}
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	})
	if whole := drainTime + settleTime; whole > 3600*time.Millisecond {
		t.Errorf("a relay may take %s", whole)
	}
	r := b.newRelay(t)
	r.drainFor, r.settleFor = drainTime/20, settleTime/20
	var log bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	<-inFlight
	gate.shut()
	r.Wake() // so that it also claims
	cancel()
	limit := time.NewTimer(queue.Timeout)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
		t.Errorf("the relay has not ended %s after it was cancelled", queue.Timeout)
		<-ended
	}
	b.db = direct
	if n := b.count(t, unpublished); n != 1 {
		t.Errorf("%d events are unpublished", n)
	}
	if n := strings.Count(log.String(), "before it could hand back its leases, they run out by themselves\" events=1\n"); n != 1 {
		t.Errorf("the relay says %d times that it leaves a lease: %s", n, log.String())
	}
}

// gate passes a database's bytes on, until it is shut.
type gate struct {
	shut func()
}

// newGate has rawURL lead through a gate.
func newGate(t *testing.T, rawURL *string) *gate {
	t.Helper()
	u, err := url.Parse(*rawURL)
	if err != nil {
		t.Fatal(err)
	}
	network, address := "tcp", u.Host
	if socket := u.Query().Get("host"); socket != "" {
		network, address = "unix", socket+"/.s.PGSQL."+u.Query().Get("port")
	}
	lis := porttest.Listen(t)
	t.Cleanup(func() { _ = lis.Close() })
	closed, shut := context.WithCancel(t.Context())
	pass := func(to, from net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if closed.Err() != nil {
				<-t.Context().Done() // neither an answer nor an end
			}
			if err != nil {
				_ = to.Close()
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
	}
	go func() {
		for {
			in, err := lis.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(t.Context(), network, address)
			if err != nil {
				_ = in.Close()
				continue
			}
			go pass(in, out)
			go pass(out, in)
		}
	}()
	q := u.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = lis.Addr().String(), q.Encode()
	*rawURL = u.String()
	return &gate{shut: shut}
}
