package catalog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// watching is an instance that checks the videos, with video's table as their owner.
func (f *fixture) watching(interval time.Duration) (w *watch, said *bytes.Buffer) {
	said = &bytes.Buffer{}
	videos := f.projector.Comparisons()[0]
	videos.Owner = reconcile.NewTable(f.admin, "video.videos", []string{"video_id"}, videoColumns, "1::bigint")
	return newWatch(f.pool, []reconcile.Checker{videos}, interval, slog.New(slog.NewTextHandler(said, nil)), func() {}), said
}

// A check tells of a row that differs, and repairs nothing. Within the interval no instance
// makes another one; after it, any does.
func TestOneInstanceChecks(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	id := newVideoID()
	f.must(t, 1, createdEvent(id, 1, "without an owner"))
	first, said := f.watching(time.Hour)
	second, other := f.watching(time.Hour)
	for _, w := range []*watch{first, second, first} {
		if err := w.checkAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(said.String(), "kind=extra"); n != 1 || !strings.Contains(said.String(), id.String()) || !strings.Contains(said.String(), "differing=1") || other.Len() > 0 {
		t.Errorf("the first instance said %q, the second %q", said, other)
	}
	if first.last["video"].IsZero() || second.last["video"].IsZero() {
		t.Error("an instance does not know of the check")
	}
	if v := f.row(t, id); v.Version != 1 || v.DeletedAt != nil {
		t.Errorf("the check has changed the row to %+v", v)
	}
	third, again := f.watching(0)
	if err := third.checkAll(t.Context()); err != nil || !strings.Contains(again.String(), "kind=extra") {
		t.Errorf("after the interval: %v, %q", err, again)
	}
}

// A check of a table of any size up to 864 million rows ends before the next one is due.
func TestALargeTableIsCheckedFaster(t *testing.T) {
	t.Parallel()
	w := &watch{interval: CheckInterval}
	for rows, want := range map[int64]int{
		0: checkRate, 43_200_000: checkRate, 86_400_000: 2 * checkRate, 864_000_000: maxCheckRate, 1 << 40: maxCheckRate,
	} {
		if got := w.rate(rows); got != want {
			t.Errorf("%d rows are compared at %d a second, want %d", rows, got, want)
		}
	}
	w.checks = make([]reconcile.Checker, 3)
	if got := w.rate(43_200_000); got != 3*checkRate {
		t.Errorf("one of three types, which are compared one after the other, has %d rows a second", got)
	}
	if got := (&watch{}).rate(0); got != checkRate {
		t.Errorf("without an interval: %d rows a second", got)
	}
}

// rated is a check that notes its rate.
type rated struct {
	reconcile.Checker

	rows int64
	rate int
}

func (r *rated) Estimate(context.Context) (int64, error) { return r.rows, nil }

func (r *rated) Check(_ context.Context, o reconcile.Options, _ reconcile.Observer) (int, error) {
	r.rate = o.Rate
	return 0, nil
}

// The rate of a check follows the size of its table.
func TestACheckHasTheRateOfItsTable(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	w, _ := f.watching(CheckInterval)
	large := &rated{Checker: w.checks[0], rows: 100 * 43_200}
	w.checks, w.interval = []reconcile.Checker{large}, 2*time.Minute
	if err := w.checkAll(t.Context()); err != nil || large.rate != maxCheckRate {
		t.Errorf("4,320,000 rows in a minute are compared at %d a second, %v", large.rate, err)
	}
}

// A rebuild that is not finished is told of, once a day, until its end. The service may not read
// the tables of the rebuild, which belong to the schema's owner.
func TestAnOpenRebuildIsToldOf(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	w, said := f.watching(time.Hour)
	for _, step := range []struct {
		sql   string
		open  int64
		lines int
	}{
		{`SELECT 1`, 0, 0},
		{`CREATE TABLE catalog.rebuild_state (); CREATE TABLE catalog.video_projection_shadow (LIKE catalog.video_projection INCLUDING ALL)`, 1, 1},
		{`SELECT 1`, 1, 1},
		{`DROP TABLE catalog.rebuild_state, catalog.video_projection_shadow`, 0, 1},
		{`CREATE TABLE catalog.rebuild_state ()`, 1, 2},
	} {
		pgtest.Exec(t, f.admin, step.sql)
		if err := w.checkAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(said.String(), "a rebuild is open"); w.rebuilds != step.open || lines != step.lines {
			t.Errorf("after %s: open %d, want %d; %d lines, want %d", step.sql, w.rebuilds, step.open, lines, step.lines)
		}
	}
	if strings.Count(said.String(), "copy_bytes=0") != 1 {
		t.Errorf("said %s", said)
	}
}

// While a backfill is under way its type is not checked: rows that are missing yet are no
// fault. One that was cut off stops the checks for a day.
func TestChecksWaitForABackfill(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.must(t, 1, createdEvent(newVideoID(), 1, "without an owner"))
	for _, step := range []struct {
		backfill string
		checked  bool
	}{
		{`INSERT INTO catalog.backfills (aggregate_type, started_at) VALUES ('video', now() - interval '23 hours')`, false},
		{`UPDATE catalog.backfills SET started_at = now() - interval '25 hours'`, true},
		{`UPDATE catalog.backfills SET started_at = now(), finished_at = now()`, true},
	} {
		pgtest.Exec(t, f.admin, step.backfill)
		w, said := f.watching(0)
		if err := w.checkAll(t.Context()); err != nil || strings.Contains(said.String(), "kind=extra") != step.checked {
			t.Errorf("%s: %v, %q", step.backfill, err, said)
		}
	}
}

// Another instance continues where one has ended, and only then.
func TestACheckIsContinued(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	w, _ := f.watching(time.Hour)
	start := w.checks[0].Start()
	claim := func(holder uuid.UUID) (string, bool) {
		t.Helper()
		from, due, err := claimCheck(t.Context(), w.db, "video", start, holder, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return from, due
	}
	one, two, at := uuid.New(), uuid.New(), newVideoID().String()
	if from, due := claim(one); !due || from != start {
		t.Errorf("the first check: %q %t", from, due)
	}
	if err := saveCheck(t.Context(), w.db, "video", one, at, 4096); err != nil {
		t.Fatal(err)
	}
	if from, due := claim(two); due {
		t.Errorf("a check that another instance makes is claimed, from %q", from)
	}
	if from, due := claim(one); !due || from != at {
		t.Errorf("its own check again: %q %t", from, due)
	}
	for _, lease := range []string{"clock_timestamp() - interval '1 s'", "clock_timestamp() + interval '1 day'"} {
		pgtest.Exec(t, f.admin, `UPDATE catalog.reconcile_checks SET holder = NULL, leased_until = `+lease)
		if from, due := claim(two); !due || from != at {
			t.Errorf("a lease until %s: %q %t", lease, from, due)
		}
	}
	if err := saveCheck(t.Context(), w.db, "video", one, at, 1); !errors.Is(err, errCheckLost) {
		t.Errorf("the first instance goes on: %v", err)
	}
	if err := saveCheck(t.Context(), w.db, "video", two, "", 0); err != nil {
		t.Fatal(err)
	}
	if _, due := claim(one); due {
		t.Error("a check is due within the interval")
	}
	if age, err := checkAge(t.Context(), w.db, "video"); err != nil || age < 0 || age > time.Hour {
		t.Errorf("the last check: %v %v", age, err)
	}
}

// The database's clock was ahead during a check, and was set right since, as after a failover. A check
// is due all the same, and its age counts from the present.
func TestACheckAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	w, said := f.watching(time.Hour)
	for name, row := range map[string]string{
		"whole":   `(aggregate_type, started_at, finished_at) VALUES ('video', now() + interval '1 day', now() + interval '1 day')`,
		"cut off": `(aggregate_type, next_id, started_at) VALUES ('video', '` + newVideoID().String() + `', now() + interval '1 day')`,
	} {
		pgtest.Exec(t, f.admin, `DELETE FROM catalog.reconcile_checks; INSERT INTO catalog.reconcile_checks `+row)
		said.Reset()
		from, due, err := claimCheck(t.Context(), w.db, "video", w.checks[0].Start(), w.holder, time.Hour)
		if err != nil || !due || from == "" {
			t.Errorf("%s: claimed %t from %q, %v; want a check that is due", name, due, from, err)
		}
		if age, err := checkAge(t.Context(), w.db, "video"); err != nil || age < 0 {
			t.Errorf("%s: the last check was %v ago, %v", name, age, err)
		}
		if err := w.checkAll(t.Context()); err != nil || !strings.Contains(said.String(), "differing=0") {
			t.Errorf("%s: %v, %q, want a check to its end", name, err, said)
		}
	}
}

// A backfill that was cut off while the database's clock was ahead prevents no checks once the clock is
// set right. One that goes on prevents them, because its lease is of the present.
func TestABackfillOfAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	w, _ := f.watching(time.Hour)
	for _, tc := range []struct {
		began, lease string
		due          bool
	}{
		{"30 days", "NULL", true},
		{"30 days", "now() + interval '30 days 30 seconds'", true},
		{"30 days", "now() + interval '30 seconds'", false},
		{"-1 hour", "NULL", false},
		{"-25 hours", "NULL", true},
	} {
		pgtest.Exec(t, f.admin, `DELETE FROM catalog.reconcile_checks; DELETE FROM catalog.backfills;
			INSERT INTO catalog.backfills (aggregate_type, started_at, leased_until)
			VALUES ('video', now() + interval '`+tc.began+`', `+tc.lease+`)`)
		if _, due, err := claimCheck(t.Context(), w.db, "video", w.checks[0].Start(), w.holder, time.Hour); err != nil || due != tc.due {
			t.Errorf("a backfill that began at %s, leased until %s: a check is due: %t, %v", tc.began, tc.lease, due, err)
		}
	}
}

// checkOfAnother is a check of another type of aggregate.
type checkOfAnother struct{ reconcile.Checker }

func (checkOfAnother) Type() string { return "another" }

// A type that cannot be compared leaves the others checked. Its age grows from the first try
// on, in whichever instance that was.
func TestOneTypeThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	id := newVideoID()
	f.must(t, 1, createdEvent(id, 1, "without an owner"))
	w, said := f.watching(time.Hour)
	bad := checkOfAnother{f.projector.Comparisons()[0]} // its owner makes no digests
	w.checks = []reconcile.Checker{bad, w.checks[0]}
	if err := w.checkAll(t.Context()); !errors.Is(err, reconcile.ErrDefinition) || !strings.Contains(err.Error(), bad.Type()) {
		t.Errorf("%s cannot be compared: %v", bad.Type(), err)
	}
	if !strings.Contains(said.String(), id.String()) || w.last["video"].IsZero() {
		t.Errorf("the other type is not checked: %s", said)
	}
	pgtest.Exec(t, f.admin, `UPDATE catalog.reconcile_checks SET started_at = started_at - interval '5 days' WHERE finished_at IS NULL`)
	other, _ := f.watching(time.Hour)
	other.checks = w.checks
	if err := other.checkAll(t.Context()); err != nil || time.Since(other.last[bad.Type()]) < 5*24*time.Hour || time.Since(other.last["video"]) > time.Hour {
		t.Errorf("after 5 days: %v, %v", err, other.last)
	}
}

// An owner of a release without digests is told apart from a table that differs.
func TestAnOwnerWithoutDigests(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	c := f.projector.Comparisons()[0]
	_, err := c.Check(t.Context(), reconcile.Options{}, &watched{kind: "video"})
	if !errors.Is(err, reconcile.ErrDefinition) || !strings.Contains(err.Error(), "does not make digests") {
		t.Errorf("%s expected, got %v", codes.Unimplemented, err)
	}
}
