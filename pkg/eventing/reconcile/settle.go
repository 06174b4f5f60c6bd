package reconcile

import (
	"context"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

// signEvery is the pause between two calls by which settle tells the observer that the check goes on. It can
// be longer by one look. Without these calls, many looks at a slow owner would take longer than an observer
// waits.
const signEvery = 10 * time.Second

// settleOld settles the uncertain rows if there are maxPending of them, or if the first of them has
// waited for longer than maxAge.
func (r *run) settleOld(ctx context.Context) error {
	if len(r.pending) >= maxPending || len(r.pending) > 0 && time.Since(r.pending[0].first) > maxAge {
		return r.settle(ctx)
	}
	return nil
}

// settle looks at the uncertain rows again and again. If rows are still uncertain after the first look at all
// of them, it tells the observer how many (Observer.Waits), and then again every signEvery. settle is finished
// with a row if the row is equal on both sides, or if its difference is certain. A row that is still uncertain
// after its time (see the method patience) counts as unsettled. The time begins with the call of settle.
func (r *run) settle(ctx context.Context) error {
	began, said := time.Now(), time.Time{}
	for attempt := 1; len(r.pending) > 0; attempt++ {
		if !backoff.Sleep(ctx, again.Delay(attempt), nil) {
			return ctx.Err()
		}
		left := r.pending[:0]
		for _, s := range r.pending {
			if time.Since(r.shown) >= signEvery {
				if err := r.alive(ctx); err != nil {
					return err
				}
			}
			open, err := r.lookAgain(ctx, s)
			switch {
			case err != nil:
				return err
			case open != "" && time.Since(began) > r.patience(open):
				r.unsettled++
			case open != "":
				left = append(left, s)
			}
		}
		r.pending = left
		if len(left) > 0 && time.Since(said) >= signEvery {
			said = time.Now()
			r.observer.Waits(ctx, len(left))
		}
	}
	return nil
}

// lookAgain looks at an uncertain row once more. If the difference is now certain, lookAgain
// reports it. If the difference is still uncertain, lookAgain returns its kind.
func (r *run) lookAgain(ctx context.Context, s *uncertainRow) (open Kind, err error) {
	if err := r.limit.Wait(ctx); err != nil {
		return "", err
	}
	reader, owner, answer, err := r.look(ctx, s.id)
	if err != nil {
		return "", err
	}
	kind := kindOf(reader, owner, answer)
	switch {
	case kind == "":
		return "", nil
	case !s.certain(kind, reader, owner, answer, r.grace):
		return kind, nil
	}
	return "", r.observer.Differ(ctx, []Difference{{s.id, kind, reader, owner}})
}

// look reads a row of both sides, the owner's first. So a change that only the reader's row shows
// is newer than the owner's answer.
func (r *run) look(ctx context.Context, id string) (reader, owner Row, a Answer, err error) {
	owners, err := r.Owner.Page(ctx, r.definition, Only(id))
	if err != nil {
		return reader, owner, a, fmt.Errorf("ask the owner: %w", err)
	}
	mine, err := r.minePage(ctx, Only(id))
	if err != nil {
		return reader, owner, a, err
	}
	if len(owners.Rows) > 0 {
		owner = owners.Rows[0]
	}
	if len(mine.Rows) > 0 {
		reader = mine.Rows[0]
	}
	return reader, owner, owners.Answer, nil
}
