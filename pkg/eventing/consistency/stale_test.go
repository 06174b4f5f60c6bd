package consistency_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/lockstep/pkg/eventing/consistency"
)

// Who takes stale data has it at once where no wait is possible, or none is wanted.
func TestStaleAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, token := newReader(), has{1, 2}.token()
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		behind := func(context.Context) (consistency.Freshness, error) { return consistency.Behind, nil }
		ask := func(context.Context) error { t.Error("the owner is asked"); return nil }
		read := func(ctx context.Context, q consistency.Request) (consistency.Outcome, error) {
			q.Token, q.Wait = token, time.Minute
			d, err := q.Requirement("video", func(string) bool { return true })
			if err != nil {
				return consistency.Failed, err
			}
			return r.Read(ctx, d, query{behind, ask})
		}
		go func() { _, _ = read(ctx, consistency.Request{}) }() // takes the only place to wait in
		synctest.Wait()
		began := time.Now()
		for name, q := range map[string]consistency.Request{
			"no place to wait in": {StaleIfError: true}, "least latency": {Mode: consistency.MinimizeLatency},
		} {
			if o, err := read(t.Context(), q); o != consistency.Stale || err != nil || time.Since(began) != 0 {
				t.Errorf("%s: %s after %s, %v; want it stale at once", name, o, time.Since(began), err)
			}
		}
	})
}
