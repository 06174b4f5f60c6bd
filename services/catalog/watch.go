package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/instrument"
	"example.com/lockstep/pkg/eventing/reconcile"
)

const (
	// CheckInterval is the default time from the start of one check to the start of the next.
	CheckInterval = 24 * time.Hour
	// checkRate is how many rows a second a check compares at least, 86 million a day. It reads a part every four
	// seconds, which takes each database some tens of milliseconds. A larger table is compared faster, up to
	// maxCheckRate, so that a check ends before the next one is due.
	checkRate, maxCheckRate = 1000, 20_000
	// checkLease is how long an instance holds a check after it saved its progress. It is longer
	// than a part of a check takes, and longer than a check takes to decide about its uncertain
	// rows. If the instance dies, another one continues the check after the lease.
	checkLease = 5 * time.Minute
	// sayRebuild is the pause between two log lines of an instance about an open rebuild.
	sayRebuild = 24 * time.Hour
	// watchTimeout bounds each statement of a watch. It is longer than the exchange of a rebuild locks the
	// copies, because the query for an open rebuild waits for that lock.
	watchTimeout = 10 * time.Second
	// maxCheckLines bounds the log lines of one check, since each row may differ.
	maxCheckLines = 100
)

var errCheckLost = errors.New("another instance holds the check")

// checkPause is the pause before the next look whether a check is due. The pause grows with the
// number of failures in a row.
var checkPause = backoff.Policy{Base: 2 * time.Minute, Cap: time.Hour}

// watch compares the projections with their owner, and the counters with the rows that they count.
// It does so slowly and repeatedly, in one instance at a time. It repairs nothing, for two reasons.
// A difference is the trace of a fault, and a repair would remove the trace before a person has
// seen it. And the owner itself may be wrong, after a restore, or because the configured address is
// wrong. A repair would then copy wrong rows over a read model that is right.
type watch struct {
	db        bounded.Pool
	checks    []reconcile.Checker
	interval  time.Duration
	log       *slog.Logger
	heartbeat func()
	// holder is the name of this instance.
	holder uuid.UUID
	began  time.Time

	mu sync.Mutex
	// last has, by aggregate type, the time when the last complete check ended, in any instance.
	// Before the first check is complete, it has the time when that check began.
	last map[string]time.Time
	// rebuilds is the number of open rebuilds, 0 or 1.
	rebuilds int64
	// said is the time of the last log line about an open rebuild.
	said time.Time
}

func newWatch(db *pgxpool.Pool, checks []reconcile.Checker, interval time.Duration, log *slog.Logger, heartbeat func()) *watch {
	return &watch{
		db: bounded.Pool{DB: db, Limit: watchTimeout}, checks: checks, interval: interval, log: log, heartbeat: heartbeat,
		holder: uuid.New(), began: time.Now(), last: map[string]time.Time{},
	}
}

// Run checks until ctx ends.
func (w *watch) Run(ctx context.Context) error {
	meter := instrument.For("example.com/lockstep/services/catalog")
	age := meter.Age("reconcile.check.age",
		"Time since the end of the last whole check of a projection against its owner, or since the begin of the first one")
	open := meter.Gauge("reconcile.rebuild.open", "{rebuild}", "Rebuilds that are not finished: each row is written twice until then")
	defer meter.Observe(func(_ context.Context, o metric.Observer) error {
		w.observe(o, age, open)
		return nil
	}, age, open)()
	for _, c := range w.checks {
		reconcile.Begin(c)
	}
	failures := 0
	for w.pause(ctx, failures) {
		failures++
		err := w.checkAll(ctx)
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() == nil:
			w.log.WarnContext(ctx, "read model not compared with its owner, trying again", "error", err)
		}
	}
	return nil
}

// pause waits until the next look is due, and calls heartbeat meanwhile. It returns false when ctx
// has ended. There is a pause before the first look, too. It spreads out the instances of a
// deployment, which have other things to do when they start.
func (w *watch) pause(ctx context.Context, failures int) bool {
	const step = time.Minute
	for left := checkPause.Delay(failures + 1); left > 0; left -= step {
		w.heartbeat()
		if !backoff.Sleep(ctx, min(left, step), nil) {
			return false
		}
	}
	return true
}

func (w *watch) observe(o metric.Observer, age metric.Float64Observable, open metric.Int64Observable) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.ObserveInt64(open, w.rebuilds)
	for _, c := range w.checks {
		last, ever := w.last[c.Type()]
		if !ever {
			last = w.began
		}
		o.ObserveFloat64(age, time.Since(last).Seconds(), metric.WithAttributes(attribute.String("aggregate_type", c.Type())))
	}
}

// checkAll makes the checks that are due. A type that cannot be compared does not stop the checks
// of other types.
func (w *watch) checkAll(ctx context.Context) (err error) {
	err = w.lookForRebuild(ctx)
	for _, c := range w.checks {
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		failed := errors.Join(w.checkIfDue(ctx, c), w.look(ctx, c.Type()))
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", c.Type(), failed))
		}
	}
	return err
}

// lookForRebuild stores whether a rebuild is open. It logs an open rebuild once a day, because an
// operator may have forgotten to finish it.
func (w *watch) lookForRebuild(ctx context.Context) error {
	open, bytes, err := openRebuild(ctx, w.db)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rebuilds = 0
	if !open {
		w.said = time.Time{}
		return nil
	}
	w.rebuilds = 1
	if time.Since(w.said) > sayRebuild {
		w.said = time.Now()
		w.log.WarnContext(ctx, "a rebuild is open: each row is written twice until `rebuild finish`", "copy_bytes", bytes)
	}
	return nil
}

func (w *watch) checkIfDue(ctx context.Context, c reconcile.Checker) error {
	from, due, err := claimCheck(ctx, w.db, c.Type(), c.Start(), w.holder, w.interval)
	if err != nil || !due {
		return err
	}
	if err = w.check(ctx, c, from); errors.Is(err, errCheckLost) {
		return nil
	}
	return err
}

func (w *watch) look(ctx context.Context, kind string) error {
	age, err := checkAge(ctx, w.db, kind)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[kind] = time.Now().Add(-age)
	return nil
}

// check makes one check, which begins at the id from.
func (w *watch) check(ctx context.Context, c reconcile.Checker, from string) error {
	rows, err := c.Estimate(ctx)
	if err != nil {
		return err
	}
	seen := &watched{watch: w, kind: c.Type(), next: from, waits: rate.Sometimes{First: 1, Interval: sayWaits}}
	unsettled, err := c.Check(ctx, reconcile.Options{From: from, Rate: w.rate(rows)}, seen)
	if err != nil {
		return err
	}
	w.log.InfoContext(ctx, "read model compared with its owner", "aggregate_type", seen.kind,
		"differing", seen.differing, "unsettled", unsettled)
	return saveCheck(ctx, w.db, seen.kind, w.holder, "", 0)
}

// rate returns how many rows a second a check of so many rows compares. One instance may make the checks of all types, one
// after the other. At this rate they end within half of the interval, as far as maxCheckRate allows.
func (w *watch) rate(rows int64) int {
	share := max(w.interval/2/time.Duration(max(len(w.checks), 1)), time.Second)
	return int(min(max(checkRate, float64(rows)/share.Seconds()), maxCheckRate))
}

// watched is the reconcile.Observer of one check.
type watched struct {
	*watch

	kind      string
	next      string
	differing int
	waits     rate.Sometimes
}

// sayWaits is the pause between two log lines of a check about uncertain rows.
const sayWaits = time.Minute

// Waits logs that the check waits.
func (w *watched) Waits(ctx context.Context, rows int) {
	w.waits.Do(func() {
		w.log.InfoContext(ctx, "rows may differ because of events on their way, looking again", "aggregate_type", w.kind, "rows", rows)
	})
}

// Retries logs the error.
func (w *watched) Retries(ctx context.Context, err error) {
	w.log.WarnContext(ctx, "rows not read, trying again", "aggregate_type", w.kind, "error", err)
}

// Passed saves the progress.
func (w *watched) Passed(ctx context.Context, next string, rows int64) error {
	w.heartbeat()
	w.next = next
	return saveCheck(ctx, w.db, w.kind, w.holder, next, rows)
}

// Differ logs the rows that differ. It also renews the lease, because a part takes long if all of
// its rows differ.
func (w *watched) Differ(ctx context.Context, found []reconcile.Difference) error {
	for _, d := range found {
		w.differing++
		if w.differing <= maxCheckLines {
			w.log.ErrorContext(ctx, "row differs from its owner's", "aggregate_type", w.kind, "aggregate_id", d.ID, "kind", d.Kind,
				"version", d.Reader.Version, "owner_version", d.Owner.Version)
		}
	}
	return w.Passed(ctx, w.next, 0)
}
