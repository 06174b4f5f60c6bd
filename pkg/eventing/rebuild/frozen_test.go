package rebuild_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// A process stands still while its transaction has the served tables for itself. Reads wait for 3 s and not for the
// process, which goes on by itself afterwards.
func TestAProcessThatStandsStillLetsItsTablesGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	still := &standstill{after: "IN ACCESS EXCLUSIVE MODE", began: make(chan struct{}), end: make(chan struct{})}
	f.connect(t, still)
	ended := make(chan error, 1)
	go func() {
		_, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
		ended <- err
	}()
	<-still.began
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, read := f.app.Exec(ctx, `SELECT FROM one`)
	if read != nil {
		t.Errorf("a read: %v", read)
	}
	close(still.end)
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
	slow := &slowPage{}
	f.connect(t, slow)
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

// slowPage is a tracer that holds up the second page of a filling until its time has passed.
type slowPage struct{ pages atomic.Int32 }

// TraceQueryStart implements pgx.QueryTracer.
func (s *slowPage) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "WITH page AS") && s.pages.Add(1) == 2 {
		<-ctx.Done()
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*slowPage) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// standstill is a tracer that stops a process once, after a statement that contains the text after.
type standstill struct {
	after      string
	began, end chan struct{}
	once       sync.Once
}

type statementKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (*standstill) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statementKey{}, q.SQL)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *standstill) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(statementKey{}).(string); q.Err == nil && strings.Contains(sql, s.after) {
		s.once.Do(func() {
			close(s.began)
			<-s.end
		})
	}
}
