package inbox

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
)

// markStarted records, in a commit of its own, that batch is about to be applied. first are
// the events that were never started before. before are those that were, and are not done;
// their rows stay as they are.
func (s store) markStarted(ctx context.Context, batch []*delivery) (first, before map[*delivery]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := s.db.Query(ctx, `
		INSERT INTO inbox AS i (`+rowColumns+`, status, begun)
		SELECT DISTINCT ON (e.event_id) $1, e.*, 'held', 1 FROM `+rowsOf+` ORDER BY e.event_id
		ON CONFLICT (consumer, event_id) DO UPDATE SET begun = 1, last_seen_at = clock_timestamp()
		 WHERE i.status <> 'done' AND i.begun = 0 AND `+sameAs("excluded")+`
		RETURNING event_id, aggregate_type, aggregate_id, version`, s.rows(batch)...)
	if first, err = matching(rows, batch); err != nil {
		return nil, nil, fmt.Errorf("begin: %w", err)
	}
	if len(first) == len(batch) {
		return first, nil, nil
	}
	rows, _ = s.db.Query(ctx, `
		SELECT event_id, aggregate_type, aggregate_id, version
		  FROM inbox WHERE consumer = $1 AND event_id = ANY ($2) AND status <> 'done'`, s.consumer, ids(batch))
	if before, err = matching(rows, batch); err != nil {
		return nil, nil, fmt.Errorf("begin: %w", err)
	}
	maps.DeleteFunc(before, func(d *delivery, _ bool) bool { return first[d] })
	return first, before, nil
}

// markStartedAgain counts, in a commit of its own, that d is about to be applied, and
// returns the count.
func (s store) markStartedAgain(ctx context.Context, d *delivery) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = s.db.QueryRow(ctx, `
		UPDATE inbox i SET begun = begun + 1, last_seen_at = clock_timestamp() FROM `+rowsOf+`
		 WHERE i.consumer = $1 AND i.event_id = e.event_id AND `+sameAs("e")+`
		RETURNING begun`, s.rows([]*delivery{d})...).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) { // purged meanwhile: it was done
		return 0, nil
	}
	return n, err
}

// unmarkStarted takes back one recorded start of batch: this instance lives, and gives the
// batch back.
func (s store) unmarkStarted(ctx context.Context, batch []*delivery) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := s.db.Exec(ctx, `
		UPDATE inbox i SET begun = greatest(begun - 1, 0) FROM `+rowsOf+`
		 WHERE i.consumer = $1 AND i.event_id = e.event_id AND `+sameAs("e"), s.rows(batch)...)
	return err
}

// register writes that this instance has started, and reports whether another one has not
// ended.
func (s store) register(ctx context.Context) (others bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = s.db.QueryRow(ctx, `
		WITH own AS (
		  INSERT INTO inbox_runs (consumer, run) VALUES ($1, $2)
		  ON CONFLICT (consumer, run) DO UPDATE SET seen_at = clock_timestamp())
		SELECT EXISTS (SELECT FROM inbox_runs WHERE consumer = $1 AND run <> $2)`, s.consumer, s.instance).Scan(&others)
	return others, err
}

// deregister writes that this instance has ended well.
func (s store) deregister(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := s.db.Exec(ctx, `DELETE FROM inbox_runs WHERE consumer = $1 AND run = $2`, s.consumer, s.instance)
	return err
}
