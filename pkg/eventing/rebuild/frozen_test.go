package rebuild_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// A process stands still while its transaction has the served tables for itself. Reads wait for 3 s and not for the
// process, which goes on by itself afterwards.
func TestAProcessThatStandsStillLetsItsTablesGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	goOn := make(chan struct{})
	still, stopped := pgtest.Standstill("IN ACCESS EXCLUSIVE MODE", goOn)
	f.connect(t, still)
	ended := make(chan error, 1)
	go func() {
		_, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
		ended <- err
	}()
	<-stopped
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, read := f.app.Exec(ctx, `SELECT FROM one`)
	if read != nil {
		t.Errorf("a read: %v", read)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Errorf("the rebuild, after it stood still: %v", err)
	}
	f.phase(t, rebuild.Done)
	f.same(t, "one", "two")
}

// A process stands still while it fills a page, for longer than the page may take. It fills the page again.
func TestAPageThatTookTooLongIsFilledAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 150)
	var pages atomic.Int32
	f.connect(t, &pgtest.Tracer{Before: func(ctx context.Context, _ *pgx.Conn, trip pgtest.Trip) {
		if trip.Contains("WITH page AS") && pages.Add(1) == 2 { // the second page, until its time has passed
			<-ctx.Done()
		}
	}})
	again := 0
	f.at = func(step string) {
		if strings.HasPrefix(step, "again: ") {
			again++
		}
	}
	f.run(t)
	if again != 1 {
		t.Errorf("%d pages were filled again, want 1", again)
	}
	f.phase(t, rebuild.Done)
	f.same(t, "one", "two")
}
