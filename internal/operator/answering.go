package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// lookEvery and silentLooks bound the time for which a command waits for one answer of the database:
// two minutes. A server that is frozen, or a network that swallows packets, ends no connection. A
// command such as the erasure of a user with many rows has no bound as a whole.
const (
	lookEvery   = 10 * time.Second
	silentLooks = 12
)

var errSilent = errors.New("the database has not answered for two minutes: run the command again when it does")

// answering returns a context that ends with errSilent if a connection is in use, and no other use of
// a connection begins, for silentLooks looks. From the first such look on, the command says that it
// waits. The caller must call stop, which returns after the last such line.
func (s *invocation) answering(ctx context.Context, every time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for silent, before := 0, int64(-1); silent < silentLooks; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			stat := s.db.Stat()
			if stat.AcquiredConns() == 0 || stat.AcquireCount() != before {
				silent, before = 0, stat.AcquireCount()
				continue
			}
			silent++
			if s.ErrIsTerminal { // a progress bar is there
				fmt.Fprint(s.Err, "\r"+clearLine)
			}
			fmt.Fprintln(s.Err, "waiting for an answer of the database")
		}
		cancel(errSilent)
	})
	return ctx, func() { cancel(nil); looking.Wait() }
}

// silence returns errSilent in place of err if ctx has ended with it. The error of a canceled
// statement does not say why.
func silence(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}
