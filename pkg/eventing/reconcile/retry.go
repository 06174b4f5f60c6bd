package reconcile

import (
	"context"

	"example.com/lockstep/pkg/eventing/bounded"
)

// tryAgain is bounded.TryAgain. It reports each failed attempt that it repeats to seen, unless seen is nil.
func tryAgain[T any](ctx context.Context, seen Observer, do func() (T, error)) (T, error) {
	var retries func(error)
	if seen != nil {
		retries = func(err error) { seen.Retries(ctx, err) }
	}
	return bounded.TryAgain(ctx, retries, do)
}

// repairAgain calls repair, and repeats it after a failed connection. It returns the ids that all attempts have
// returned. A repeated repair leaves the rows that an earlier attempt has repaired, so repairAgain does not return a row
// whose COMMIT had no answer. The audit table has each row once.
func repairAgain(ctx context.Context, repair func() ([]string, error)) (repaired []string, err error) {
	_, err = tryAgain(ctx, nil, func() (int, error) {
		ids, err := repair()
		repaired = append(repaired, ids...)
		return len(ids), err
	})
	return repaired, err
}

// minePage reads a page of the reader's rows.
func (r *run) minePage(ctx context.Context, in Range) (Page, error) {
	return tryAgain(ctx, r.observer, func() (Page, error) { return r.Reader.Page(ctx, r.definition, in) })
}

// ownLeaves are the reader's leaves in the ranges of an owner's part. complete is as in Table.leaves.
type ownLeaves struct {
	leaves   []own
	complete bool
}

// mineLeaves digests the reader's rows in the ranges of the part owners, which begins at the id from.
func (r *run) mineLeaves(ctx context.Context, from string, owners Part) (ownLeaves, error) {
	return tryAgain(ctx, r.observer, func() (ownLeaves, error) {
		leaves, complete, err := r.Reader.leaves(ctx, r.definition, from, owners)
		return ownLeaves{leaves, complete}, err
	})
}
