package backlog

import (
	"context"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
)

// A process stands still while it has locked the outbox against writers. They wait for 3 s and not for the process, and no
// epoch begins.
func TestABeginOfAnEpochThatStandsStillLetsWritersGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := pgtest.Settings(t, b.pg.URL)
	goOn := make(chan struct{})
	tracer, stopped := pgtest.Standstill("LOCK TABLE outbox IN SHARE MODE", goOn)
	cfg.ConnConfig.Tracer = tracer
	db := pgtest.Open(t, cfg)
	ended := make(chan error, 1)
	go func() {
		_, err := New(db).BeginEpoch(t.Context(), order)
		ended <- err
	}()
	<-stopped
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, write := b.db.Exec(ctx, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		VALUES (gen_random_uuid(), 'video', 'a', 'VideoCreated', 1, '')`)
	if write != nil {
		t.Errorf("a write: %v", write)
	}
	close(goOn)
	if err := <-ended; err == nil {
		t.Error("the epoch has begun, although its transaction was ended")
	}
	if n := b.count(t, `SELECT count(*) FROM outbox_epochs`); n != 1 {
		t.Errorf("%d epochs, want the first one alone", n)
	}
}
