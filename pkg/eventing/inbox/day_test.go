package inbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"example.com/lockstep/internal/pgtest"
)

// The owner is unavailable for hours. More messages wait for it than fit, and innocent
// messages wait behind them. Each is delivered once, while Terraform's subscription gives a
// message up after 100 deliveries. The client's own limit would end each lease after an
// hour. Client, consumer and broker share a virtual clock, which advances when all of them
// wait; the database is real. LOCKSTEP_FULL=1 is a day. Streams that break meanwhile are in
// TestInHandIsBoundedOverBrokenStreams: the client waits for its backoff with a mutex
// locked, which stops a virtual clock.
func TestTheOwnerIsAway(t *testing.T) {
	t.Parallel()
	away := 65 * time.Minute
	if os.Getenv("LOCKSTEP_FULL") != "" {
		away = 24 * time.Hour
	}
	pg := pgtest.New(t) // its server is not of the virtual clock's
	defer func() {
		// pubsub 2.8.1 leaves a goroutine behind that waits for tickers which it has
		// stopped. The test has ended by then.
		if left := recover(); left != nil && !strings.Contains(fmt.Sprint(left), "blocked goroutines remain") {
			panic(left)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		const gaps, innocents = 24, 50
		memory := bufconn.Listen(1 << 20)
		dial := func(ctx context.Context, _ string) (net.Conn, error) { return memory.DialContext(ctx) }
		w := newWorldOn(t, pg, memory, dial, 100, 1<<20)
		w.publishGaps(t, 0, gaps)
		pgtest.Until(t, "what fits is in hand", w.isFull)
		for i := range innocents {
			w.publishRaw(t, event(fmt.Sprint("innocent", i), 1).Message())
		}
		began := time.Now()
		time.Sleep(away) //nolint:forbidigo // of the virtual clock: it takes no time
		for i := range gaps {
			w.setOwner(fmt.Sprint("gap", i), 2)
		}
		w.eventually(t, gaps+innocents, withDone)
		w.stop()
		t.Logf("the owner was away for %v: up to %d deliveries counted of 100", time.Since(began), w.most)
		if n := w.deadLetteredByTheBroker(t); n != 0 || w.most > 1 {
			t.Errorf("%d dead letters, up to %d deliveries counted of 100", n, w.most)
		}
	})
}
