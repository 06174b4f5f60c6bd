package operator

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
)

// After SIGTERM a drain ends within the 10 s that Cloud Run grants, although the outbox cannot be read.
func TestOutboxDrainEndsInTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args   []string
		waits  string // a statement that waits for the outbox at SIGTERM
		within time.Duration
	}{
		"while it relays": {nil, `%`, 10 * time.Second},
		"while it counts": {[]string{"--timeout", "1s"}, `%AS blocked%FROM outbox_pending%`, 7 * time.Second}, // the relay has ended
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.append(t, uuid.NewString(), 1)
			admin := b.pg.Pool(t, b.pg.Admin)
			holder := pgtest.Begin(t, admin)
			defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
			pgtest.Exec(t, holder, `LOCK TABLE video.outbox`)
			ctx, terminate := context.WithCancel(t.Context())
			defer terminate()
			ended := make(chan int, 1)
			go func() {
				args := append([]string{"outbox", "drain"}, tc.args...)
				ended <- b.service("video").Run(ctx, args, b.getenv("video"), io.Discard, io.Discard)
			}()
			for count(t, admin, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '`+tc.waits+`'`) == 0 {
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
			case <-time.After(tc.within):
				t.Error("it goes on")
				<-ended
			}
		})
	}
}
