package operator

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
)

// After SIGTERM a drain ends within the 10 s that Cloud Run grants, although the outbox cannot be read.
func TestOutboxDrainEndsInTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, uuid.NewString(), 1)
	admin := b.pg.Pool(t, b.pg.Admin)
	holder, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := holder.Exec(t.Context(), `LOCK TABLE video.outbox`); err != nil {
		t.Fatal(err)
	}
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	ended := make(chan int, 1)
	go func() {
		ended <- b.service("video").Run(ctx, []string{"outbox", "drain"}, b.getenv("video"), io.Discard, io.Discard)
	}()
	for count(t, admin, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
		select {
		case code := <-ended:
			t.Fatalf("it has ended with %d", code)
		default:
		}
	}
	terminate()
	select {
	case code := <-ended:
		if code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
		<-ended
	}
}
