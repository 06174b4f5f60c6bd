package backlog

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
)

// A process stands still while it has locked the outbox against writers. They wait for 3 s and not for the process, and no
// epoch begins.
func TestABeginOfAnEpochThatStandsStillLetsWritersGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := pgtest.Settings(t, b.pg.URL)
	still := &standstill{began: make(chan struct{}), end: make(chan struct{})}
	cfg.ConnConfig.Tracer = still
	db := pgtest.Open(t, cfg)
	ended := make(chan error, 1)
	go func() {
		_, err := New(db).BeginEpoch(t.Context(), order)
		ended <- err
	}()
	<-still.began
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, write := b.db.Exec(ctx, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		VALUES (gen_random_uuid(), 'video', 'a', 'VideoCreated', 1, '')`)
	if write != nil {
		t.Errorf("a write: %v", write)
	}
	close(still.end)
	if err := <-ended; err == nil {
		t.Error("the epoch has begun, although its transaction was ended")
	}
	if n := b.count(t, `SELECT count(*) FROM outbox_epochs`); n != 1 {
		t.Errorf("%d epochs, want the first one alone", n)
	}
}

// standstill is a tracer that stops a process once, after its first batch.
type standstill struct {
	began, end chan struct{}
	once       sync.Once
}

// TraceQueryStart implements pgx.QueryTracer.
func (*standstill) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*standstill) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (*standstill) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*standstill) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (s *standstill) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {
	s.once.Do(func() {
		close(s.began)
		<-s.end
	})
}
