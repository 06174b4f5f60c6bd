package catalog

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/projection"
)

const pageRows, listPages = 500, 5

// ownersList is a backfill.Filler with pages "", "1", … of pageRows rows, of which each call
// writes half.
type ownersList struct {
	asked []string
	// failed rows of each page cannot be written.
	failed int
	// before is called in each call, and its error is that of the call.
	before func() error
	asOf   func() time.Time
}

func newOwnersList() *ownersList {
	return &ownersList{before: func() error { return nil }, asOf: func() time.Time { return time.Now().Add(time.Hour) }}
}

func (*ownersList) Type() string { return videoType }

func (l *ownersList) Fill(_ context.Context, from string) (projection.Filled, error) {
	l.asked = append(l.asked, from)
	if err := l.before(); err != nil {
		return projection.Filled{}, err
	}
	page, _ := strconv.Atoi(from)
	f := projection.Filled{Rows: pageRows, Written: pageRows / 2, Failed: l.failed, AsOf: l.asOf(), Estimate: listPages * pageRows}
	if page+1 == listPages {
		f.Done = true
	} else {
		f.Next = strconv.Itoa(page + 1)
	}
	return f, nil
}

func (f *fixture) fill(ctx context.Context, l *ownersList, o backfill.Options) (backfill.State, error) {
	return backfill.Run(ctx, f.pool, l, o, func(backfill.State) {})
}

// leaseUntil changes the lease of the backfill, as time or a clock does.
func (f *fixture) leaseUntil(t *testing.T, expression string) {
	t.Helper()
	pgtest.Exec(t, f.admin, `UPDATE catalog.backfills SET leased_until = `+expression)
}

// A backfill that was cut off continues at the page that it had in hand. One that has
// finished is begun again by Restart only.
func TestABackfillIsContinued(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newOwnersList()
	ctx, stop := context.WithCancel(t.Context())
	l.before = func() error {
		if len(l.asked) == 3 {
			stop()
		}
		return ctx.Err()
	}
	s, err := f.fill(ctx, l, backfill.Options{})
	if !errors.Is(err, context.Canceled) || s.RowsRead != 2*pageRows || s.FinishedAt != nil || !slices.Equal(l.asked, []string{"", "1", "2"}) {
		t.Errorf("cut off: %+v, %v, asked %v", s, err, l.asked)
	}

	l = newOwnersList()
	began := s.StartedAt
	s, err = f.fill(t.Context(), l, backfill.Options{})
	if err != nil || s.RowsRead != listPages*pageRows || s.RowsWritten != s.RowsRead/2 || s.FinishedAt == nil || !s.StartedAt.Equal(*began) ||
		!slices.Equal(l.asked, []string{"2", "3", "4"}) {
		t.Errorf("continued: %+v, %v, asked %v", s, err, l.asked)
	}

	l = newOwnersList()
	again, err := f.fill(t.Context(), l, backfill.Options{})
	if err != nil || len(l.asked) > 0 || !again.FinishedAt.Equal(*s.FinishedAt) || again.RowsRead != s.RowsRead {
		t.Errorf("finished: %+v, %v, asked %v", again, err, l.asked)
	}
	anew, err := f.fill(t.Context(), l, backfill.Options{Restart: true})
	if err != nil || len(l.asked) != listPages || anew.RowsRead != s.RowsRead || !anew.StartedAt.After(*s.FinishedAt) || !anew.FinishedAt.After(*s.FinishedAt) {
		t.Errorf("anew: %+v, %v, asked %v", anew, err, l.asked)
	}

	for name, began := range map[string]string{"of last week": "now() - interval '8 days'", "of a clock that was set back": "now() + interval '1 hour'"} {
		pgtest.Exec(t, f.admin, `UPDATE catalog.backfills SET next_id = '2', finished_at = NULL, started_at = `+began)
		l = newOwnersList()
		s, err := f.fill(t.Context(), l, backfill.Options{})
		if err != nil || len(l.asked) != listPages || s.StartedAt.Before(*anew.FinishedAt) || s.StartedAt.After(*s.FinishedAt) {
			t.Errorf("%s: %+v, %v, asked %v", name, s, err, l.asked)
		}
	}
}

// One process at a time backfills a type. Another one is refused until the lease has ended;
// then the first is refused.
func TestOneBackfillAtATime(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newOwnersList()
	other := newOwnersList()
	l.before = func() error {
		switch len(l.asked) {
		case 1:
			if _, err := f.fill(t.Context(), other, backfill.Options{Restart: true}); !errors.Is(err, backfill.ErrRunning) || !strings.Contains(err.Error(), "try again in") {
				t.Errorf("a second one: %v", err)
			}
		case 2:
			f.leaseUntil(t, "clock_timestamp() - interval '1 s'") // killed, or so it seems
			if s, err := f.fill(t.Context(), other, backfill.Options{}); err != nil || s.RowsRead != listPages*pageRows {
				t.Errorf("after the lease: %+v, %v", s, err)
			}
		}
		return nil
	}
	s, err := f.fill(t.Context(), l, backfill.Options{})
	if !errors.Is(err, backfill.ErrRunning) || !strings.Contains(err.Error(), "taken this one over") || len(l.asked) != 2 || s.RowsRead != pageRows {
		t.Errorf("the first one: %+v, %v, asked %v", s, err, l.asked)
	}
	if !slices.Equal(other.asked, []string{"1", "2", "3", "4"}) {
		t.Errorf("the second one asked %v", other.asked)
	}
	f.leaseUntil(t, "clock_timestamp() + interval '1 day'") // of a clock that was set back
	if _, err := f.fill(t.Context(), newOwnersList(), backfill.Options{Restart: true}); err != nil {
		t.Error(err)
	}
}

// Of two that begin at the same moment one gets the lease, and the other one has read nothing.
func TestTwoBackfillsAtOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	held := pgtest.Begin(t, f.admin)
	defer held.Rollback(t.Context())
	pgtest.Exec(t, f.admin, `INSERT INTO catalog.backfills (aggregate_type) VALUES ($1)`, videoType)
	pgtest.Exec(t, held, `SELECT FROM catalog.backfills FOR UPDATE`)
	lists := [2]*ownersList{newOwnersList(), newOwnersList()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	var errs [2]error
	var running sync.WaitGroup
	for i, l := range lists {
		l.before = func() error { // so that the one with the lease has not finished when the other one asks for it
			select {
			case <-ended:
			case <-ctx.Done():
			}
			return nil
		}
		running.Go(func() {
			_, errs[i] = f.fill(t.Context(), l, backfill.Options{Restart: true})
			end()
		})
	}
	for waiting := 0; waiting < 2; {
		err := f.admin.QueryRow(ctx,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	pgtest.End(t, held.Commit)
	running.Wait()
	lost := 0
	if errs[0] == nil {
		lost = 1
	}
	if !errors.Is(errs[lost], backfill.ErrRunning) || errs[1-lost] != nil || len(lists[lost].asked) > 0 || len(lists[1-lost].asked) != listPages {
		t.Errorf("%v, asked %v, and %v, asked %v", errs[0], lists[0].asked, errs[1], lists[1].asked)
	}
}

// A page renews the lease. A backfill that another one has taken over does not give the other one's lease back.
func TestALeaseOfABackfill(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newOwnersList()
	leased := func(when string) {
		t.Helper()
		var yes bool
		err := f.admin.QueryRow(t.Context(), `SELECT coalesce(leased_until > clock_timestamp() + interval '15 s', false) FROM catalog.backfills`).Scan(&yes)
		if err != nil || !yes {
			t.Errorf("%s there is no lease of a page, %v", when, err)
		}
	}
	l.before = func() error {
		switch len(l.asked) {
		case 1:
			f.leaseUntil(t, "clock_timestamp() + interval '10 s'")
		case 2:
			leased("after a page")
			f.leaseUntil(t, "clock_timestamp() + interval '25 s', holder = gen_random_uuid()") // another one's
		}
		return nil
	}
	if _, err := f.fill(t.Context(), l, backfill.Options{}); !errors.Is(err, backfill.ErrRunning) {
		t.Errorf("taken over: %v", err)
	}
	leased("after the end of the former one")
}

// An owner that is away is asked again. One that never answers ends the backfill.
func TestABackfillTriesAgain(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newOwnersList()
	l.before = func() error {
		if len(l.asked) == 2 {
			return consistency.ErrOwnerUnavailable
		}
		return nil
	}
	if s, err := f.fill(t.Context(), l, backfill.Options{}); err != nil || s.RowsRead != listPages*pageRows || !slices.Equal(l.asked, []string{"", "1", "1", "2", "3", "4"}) {
		t.Errorf("%+v, %v, asked %v", s, err, l.asked)
	}
	l = newOwnersList()
	never := errors.New("does not list")
	l.before = func() error { return eventing.Permanent(never) }
	if _, err := f.fill(t.Context(), l, backfill.Options{Restart: true}); !errors.Is(err, never) || len(l.asked) != 1 {
		t.Errorf("%v, asked %v", err, l.asked)
	}
}

// A page counts once the owner's answer is younger than the begin of the backfill: a
// replica that lags may lack changes whose events were published before there was a
// subscription.
func TestABackfillFromAReplica(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newOwnersList()
	l.asOf = func() time.Time {
		if len(l.asked) < 3 {
			return time.Now().Add(-time.Hour)
		}
		return time.Now().Add(time.Hour)
	}
	if s, err := f.fill(t.Context(), l, backfill.Options{}); err != nil || s.RowsRead != listPages*pageRows || !slices.Equal(l.asked, []string{"", "", "", "1", "2", "3", "4"}) {
		t.Errorf("%+v, %v, asked %v", s, err, l.asked)
	}
}

// After a page comes a pause, at the rate. A backfill that is ended in it begins no other page.
func TestABackfillPauses(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newOwnersList()
	ctx, stop := context.WithCancel(t.Context())
	_, err := backfill.Run(ctx, f.pool, l, backfill.Options{Rate: 1}, func(s backfill.State) {
		if s.RowsRead == 2*pageRows {
			t.Error("two pages at one row per second")
		}
		if s.RowsRead == pageRows {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) || len(l.asked) != 1 {
		t.Errorf("%v, asked %v", err, l.asked)
	}
	if s, err := f.fill(t.Context(), l, backfill.Options{}); err != nil || s.RowsRead != listPages*pageRows {
		t.Errorf("the lease was not given back: %+v, %v", s, err)
	}
}

// An owner of a release that does not list its rows ends a backfill at once.
func TestAnOwnerWithoutAList(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, filler := range f.projector.Fillers() {
		_, err := backfill.Run(t.Context(), f.pool, filler, backfill.Options{}, func(backfill.State) {})
		if !eventing.IsPermanent(err) || !strings.Contains(err.Error(), "does not list") {
			t.Errorf("%s expected, got %v", codes.Unimplemented, err)
		}
	}
}

// fakeTime runs do with pools in a bubble, whose time passes while all of it waits.
func (f *fixture) fakeTime(t *testing.T, do func(t *testing.T, pool, admin *pgxpool.Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var pools [2]*pgxpool.Pool
		for i, outside := range []*pgxpool.Pool{f.pool, f.admin} {
			var err error
			if pools[i], err = pgxpool.New(t.Context(), outside.Config().ConnString()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pools[i].Close)
		}
		do(t, pools[0], pools[1])
	})
}

// thisCentury is a time after the begin of a backfill by the database's clock, which is not fake.
func thisCentury() time.Time { return time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC) }

// An owner may be away for half a minute, in each page. One that stays away ends the backfill.
// Each attempt that fails is passed on.
func TestABackfillOutlastsARestart(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for name, tc := range map[string]struct {
		away, hangs time.Duration
		ends        bool
	}{
		"for half a minute":              {30 * time.Second, 0, false},
		"without an answer":              {30 * time.Second, 14 * time.Second, false},
		"for ever":                       {time.Hour, 0, true},
		"for ever and without an answer": {time.Hour, 14 * time.Second, true},
	} {
		f.fakeTime(t, func(t *testing.T, pool, _ *pgxpool.Pool) {
			l, since, pages, failures, told := newOwnersList(), time.Now(), 0, 0, 0
			l.asOf = thisCentury
			l.before = func() error {
				if page := l.asked[len(l.asked)-1]; pages == 0 || l.asked[len(l.asked)-2] != page {
					since, pages = time.Now(), pages+1
				}
				if time.Since(since) >= tc.away {
					return nil
				}
				backoff.Sleep(t.Context(), tc.hangs, nil) // fake time
				failures++
				return consistency.ErrOwnerUnavailable
			}
			s, err := backfill.Run(t.Context(), pool, l, backfill.Options{Restart: true}, func(s backfill.State) {
				if s.Err != nil {
					told++
				}
			})
			switch {
			case tc.ends && (!errors.Is(err, consistency.ErrOwnerUnavailable) || pages != 1 || time.Since(since) > 80*time.Second || told != failures-1):
				t.Errorf("%s: %v after %v of page %d, %d attempts, %d told", name, err, time.Since(since), pages, failures, told)
			case !tc.ends && (err != nil || s.RowsRead != listPages*pageRows || told != failures || s.Err != nil):
				t.Errorf("%s: %+v, %v, %d attempts failed, %d told", name, s, err, failures, told)
			}
		})
	}
}

// A lease that cannot be renewed in a pause ends no backfill, and is said.
func TestABackfillPausesWithoutADatabase(t *testing.T) {
	t.Parallel()
	setUp(t).fakeTime(t, func(t *testing.T, pool, admin *pgxpool.Pool) {
		rename := func(from, to string) {
			if _, err := admin.Exec(t.Context(), `ALTER TABLE catalog.`+from+` RENAME TO `+to); err != nil {
				t.Error(err)
			}
		}
		l := newOwnersList()
		l.asOf = thisCentury
		var told []error
		s, err := backfill.Run(t.Context(), pool, l, backfill.Options{Rate: 50}, func(s backfill.State) {
			if s.RowsRead == 2*pageRows && len(told) == 0 && s.Err == nil {
				rename("backfills", "elsewhere")
			}
			if s.Err != nil {
				told = append(told, s.Err)
				rename("elsewhere", "backfills")
			}
		})
		if err != nil || s.RowsRead != listPages*pageRows || len(told) != 1 || !strings.Contains(told[0].Error(), "save backfill") {
			t.Errorf("%+v, %v, told %v", s, err, told)
		}
	})
}

// The lease is renewed in a pause, and after an attempt that failed. Otherwise another backfill would take over a slow one.
func TestALeaseOfASlowBackfill(t *testing.T) {
	t.Parallel()
	setUp(t).fakeTime(t, func(t *testing.T, pool, admin *pgxpool.Pool) {
		shorten := func() {
			if _, err := admin.Exec(t.Context(), `UPDATE catalog.backfills SET leased_until = clock_timestamp() + interval '10 s'`); err != nil {
				t.Error(err)
			}
		}
		renewed := func(when string) {
			var yes bool
			err := admin.QueryRow(t.Context(), `SELECT leased_until > clock_timestamp() + interval '15 s' FROM catalog.backfills`).Scan(&yes)
			if err != nil || !yes {
				t.Errorf("the lease is not renewed %s, %v", when, err)
			}
		}
		l := newOwnersList()
		l.asOf = thisCentury
		l.before = func() error {
			switch len(l.asked) {
			case 2:
				renewed("in a pause")
				shorten()
				return consistency.ErrOwnerUnavailable
			case 3:
				renewed("after an attempt that failed")
			}
			return nil
		}
		_, err := backfill.Run(t.Context(), pool, l, backfill.Options{Rate: 50}, func(s backfill.State) {
			if s.RowsRead == pageRows && s.Err == nil {
				shorten()
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A table that refuses many rows ends a backfill, and the next one goes on behind them.
func TestABackfillGoesOnBehindOddRows(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newOwnersList()
	l.failed = pageRows
	s, err := f.fill(t.Context(), l, backfill.Options{})
	if !errors.Is(err, backfill.ErrRefused) || !strings.Contains(err.Error(), "goes on behind them") || s.RowsFailed != 3*pageRows || s.FinishedAt != nil {
		t.Fatalf("%+v, %v", s, err)
	}
	if s, err = f.fill(t.Context(), l, backfill.Options{}); err != nil || s.RowsFailed != 2*pageRows || s.FinishedAt == nil {
		t.Errorf("%+v, %v", s, err)
	}
	if want := []string{"", "1", "2", "3", "4"}; !slices.Equal(l.asked, want) {
		t.Errorf("pages %q, want %q", l.asked, want)
	}
}
