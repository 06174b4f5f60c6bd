package projection_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/txn"
)

// pages reads a list of s, and keeps the page that it has read last.
type pages struct {
	*shelf

	t      *testing.T
	tenant string // empty is the default one
	last   []note
	reads  int
}

func (p *pages) Tenant() string { return cmp.Or(p.tenant, eventing.DefaultTenant) }

func (p *pages) Positions(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error) {
	return p.notes.Positions(ctx, wanted)
}

func (p *pages) Read(_ context.Context, wanted []consistency.Position) (reached int, err error) {
	p.last = p.rows(p.t)
	p.reads++
	for _, w := range wanted {
		for _, n := range p.last {
			if n.id() == w.AggregateID && w.Reached(n.Epoch, n.Version) {
				reached++
			}
		}
	}
	return reached, nil
}

// unreadable is a page that shows none of the wanted positions, or fails with err.
type unreadable struct {
	*notes

	err error
}

func (unreadable) Tenant() string { return eventing.DefaultTenant }

func (u unreadable) Read(context.Context, []consistency.Position) (int, error) { return 0, u.err }

func TestListIsBroughtForward(t *testing.T) {
	t.Parallel()
	there, behind := newNote("a/1", 1, 3, "there"), newNote("a/2", 1, 1, "behind")
	ahead, missing := newNote("a/2", 1, 4, "ahead"), newNote("b/1", 2, 1, "missing")
	all := []consistency.Position{at("a/1", 1, 3), at("a/2", 1, 2), at("b/1", 2, 1)}
	lags := []consistency.StaleAggregate{{ID: "a/2", Version: 1, AtLeast: 2}, {ID: "b/1", AtLeast: 1}}
	before, after := []note{there, behind}, []note{there, ahead, missing}
	for name, tc := range map[string]struct {
		ask    consistency.Request
		wanted []consistency.Position
		owner  []note
		epoch  int64 // the owner's
		tenant string
		away   error
		curt   bool

		outcome consistency.Outcome
		err     error
		stale   []consistency.StaleAggregate
		page    []note
		asked   []string
	}{
		"there":                        {wanted: all[:1], outcome: consistency.Fresh, page: before},
		"behind":                       {wanted: all, owner: []note{ahead, missing}, outcome: consistency.Authority, page: after, asked: []string{"a/2", "b/1"}},
		"minimize latency":             {ask: consistency.Request{Mode: consistency.MinimizeLatency}, wanted: all, outcome: consistency.Stale, stale: lags, page: before},
		"the owner is away":            {wanted: all, away: consistency.ErrOwnerUnavailable, outcome: consistency.Failed, err: consistency.ErrOwnerUnavailable, asked: []string{"a/2"}},
		"else stale":                   {ask: consistency.Request{StaleIfError: true}, wanted: all, away: consistency.ErrOwnerUnavailable, outcome: consistency.Stale, stale: lags, page: before, asked: []string{"a/2"}},
		"forged":                       {wanted: all[2:], outcome: consistency.Failed, err: consistency.ErrAhead, asked: []string{"b/1"}},
		"of another tenant":            {wanted: all[2:], owner: []note{missing}, tenant: "another", outcome: consistency.Failed, err: consistency.ErrAhead, asked: []string{"b/1"}},
		"lost in an epoch before":      {wanted: all, owner: []note{ahead}, epoch: 3, outcome: consistency.Authority, page: []note{there, ahead}, asked: []string{"a/2", "b/1"}},
		"lost, and nothing is left":    {wanted: all[2:], epoch: 3, outcome: consistency.Authority, page: before, asked: []string{"b/1"}},
		"unknown, in the same epoch":   {wanted: all[2:], epoch: 2, outcome: consistency.Failed, err: consistency.ErrAhead, asked: []string{"b/1"}},
		"unknown, in an epoch to come": {wanted: []consistency.Position{at("b/1", 3, 1)}, epoch: 2, outcome: consistency.Failed, err: consistency.ErrAhead, asked: []string{"b/1"}},
		"unknown, and no more is said": {wanted: all[2:], epoch: 3, curt: true, outcome: consistency.Failed, err: consistency.ErrAhead, asked: []string{"b/1"}},
		"the owner is older":           {wanted: all[1:2], owner: []note{behind}, outcome: consistency.Failed, err: consistency.ErrAhead, asked: []string{"a/2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pages{shelf: newShelf(t), t: t, tenant: tc.tenant}
			p.apply(t, change(inbox.Put, there), change(inbox.Put, behind))
			p.away, p.epoch, p.curt = tc.away, tc.epoch, tc.curt
			p.has(tc.owner...)
			outcome, stale, err := p.List(t.Context(), consistency.NewReader(p.waiters), p.writer, require(t, tc.ask, tc.wanted...), p)
			if outcome != tc.outcome || !errors.Is(err, tc.err) {
				t.Fatalf("%v, %v; want %v, %v", outcome, err, tc.outcome, tc.err)
			}
			if diff := gocmp.Diff(tc.stale, stale); diff != "" {
				t.Errorf("stale (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(tc.page, p.last); tc.err == nil && diff != "" {
				t.Errorf("page (-want +got):\n%s", diff)
			}
			slices.Sort(p.asked)
			if !slices.Equal(p.asked, tc.asked) {
				t.Errorf("asked for %v, want %v", p.asked, tc.asked)
			}
			for _, wait := range p.waits {
				if wait != consistency.FetchTimeout {
					t.Errorf("the owner has %s to answer a reader", wait)
				}
			}
		})
	}
}

// The stale positions are read before the page: the page may be newer than the report,
// and never older.
func TestAStalePageIsNoOlderThanWhatIsSaid(t *testing.T) {
	t.Parallel()
	p := &pages{shelf: newShelf(t), t: t}
	p.apply(t, change(inbox.Put, newNote("a/1", 1, 1, "one")))
	p.notes.afterPositions = func(found []consistency.Position) error {
		p.apply(t, change(inbox.Updated, newNote("a/1", 1, found[0].Version+1, "moves on")))
		return nil
	}
	_, stale, err := p.List(t.Context(), consistency.NewReader(p.waiters), p.writer,
		require(t, consistency.Request{Mode: consistency.MinimizeLatency}, at("a/1", 1, 2)), p)
	if diff := gocmp.Diff([]consistency.StaleAggregate{{ID: "a/1", Version: 1, AtLeast: 2}}, stale); err != nil || diff != "" {
		t.Errorf("stale (-want +got), %v:\n%s", err, diff)
	}
	if p.last[0].Version != 2 {
		t.Errorf("a page with version %d, read before what is said about it", p.last[0].Version)
	}
}

// A page that does not show a write to its table is not returned as consistency.
func TestAPageThatDoesNotShowItIsNotServed(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.has(newNote("a/1", 1, 1, "one"))
	_, _, err := s.List(t.Context(), consistency.NewReader(s.waiters), s.writer, require(t, consistency.Request{}, at("a/1", 1, 1)), unreadable{s.notes, nil})
	if !errors.Is(err, consistency.ErrOwnerUnavailable) {
		t.Errorf("error %v", err)
	}
	broken := errors.New("cannot be read")
	_, _, err = s.List(t.Context(), consistency.NewReader(s.waiters), s.writer, require(t, consistency.Request{}, at("a/1", 1, 1)),
		unreadable{s.notes, broken})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want the page's own", err)
	}
	s.notes.afterPositions = func([]consistency.Position) error { return broken }
	_, _, err = s.List(t.Context(), consistency.NewReader(s.waiters), s.writer, require(t, consistency.Request{}, at("a/2", 1, 1)), unreadable{s.notes, nil})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want that of where the table is", err)
	}
}

// The database refuses the state of one of two rows. A page cannot show that row, so the list fails with an error of its
// own, or says which row its page lacks. The other row is taken all the same.
func TestAListWhoseRowIsRefused(t *testing.T) {
	t.Parallel()
	p := &pages{shelf: newShelf(t), t: t}
	bad := newNote("a/1", 1, 2, "")
	bad.Body = nil
	p.has(bad, newNote("b/1", 1, 1, "good"))
	p.apply(t, change(inbox.Put, newNote("a/1", 1, 1, "old")))
	wanted := []consistency.Position{at("a/1", 1, 2), at("b/1", 1, 1)}
	_, _, err := p.List(t.Context(), consistency.NewReader(p.waiters), p.writer, require(t, consistency.Request{}, wanted...), p)
	if !errors.Is(err, consistency.ErrNotTaken) || !inbox.Refused(err) {
		t.Errorf("error %v", err)
	}
	if rows := p.rows(t); len(rows) != 2 || rows[0].Version != 1 {
		t.Errorf("rows %+v", rows)
	}
	if line := p.said.String(); strings.Count(line, "cannot be written for its readers") != 1 || !strings.Contains(line, "a/1") {
		t.Errorf("the log has %q", line)
	}
	outcome, stale, err := p.List(t.Context(), consistency.NewReader(p.waiters), p.writer,
		require(t, consistency.Request{StaleIfError: true}, wanted...), p)
	if diff := gocmp.Diff([]consistency.StaleAggregate{{ID: "a/1", Version: 1, AtLeast: 2}}, stale); err != nil || outcome != consistency.Stale || diff != "" {
		t.Errorf("%v, %v, stale (-want +got):\n%s", outcome, err, diff)
	}
	if len(p.last) != 2 || p.last[0].Version != 1 {
		t.Errorf("page %+v", p.last)
	}
}

// However many aggregates a list lacks, it asks their owner once; if the owner does not
// have all of them, none is written.
func TestAListAsksOnce(t *testing.T) {
	t.Parallel()
	p := &pages{shelf: newShelf(t), t: t}
	var wanted []consistency.Position
	for i := range consistency.MaxPositions {
		wanted = append(wanted, at(fmt.Sprintf("a/%02d", i), 1, 1))
		if i < consistency.MaxPositions-1 {
			p.has(newNote(wanted[i].AggregateID, 1, 1, "x"))
		}
	}
	_, _, err := p.List(t.Context(), consistency.NewReader(p.waiters), p.writer, require(t, consistency.Request{}, wanted...), p)
	if !errors.Is(err, consistency.ErrAhead) || p.calls != 1 || len(p.rows(t)) != 0 {
		t.Errorf("forged: %v; %d questions, %d rows", err, p.calls, len(p.rows(t)))
	}
	p.has(newNote(wanted[len(wanted)-1].AggregateID, 1, 1, "x"))
	_, _, err = p.List(t.Context(), consistency.NewReader(p.waiters), p.writer, require(t, consistency.Request{}, wanted...), p)
	if err != nil || p.calls != 2 || len(p.last) != len(wanted) {
		t.Errorf("%v; %d questions, a page of %d", err, p.calls, len(p.last))
	}
}

// A row of the table that another transaction holds makes the lists that want it fail,
// and soon; meanwhile other lists are brought forward.
func TestAListThatMeetsALock(t *testing.T) {
	t.Parallel()
	p := &pages{shelf: newShelf(t), t: t}
	p.apply(t, change(inbox.Put, newNote("a/1", 1, 1, "held")))
	p.has(newNote("a/1", 1, 2, "new"), newNote("b/1", 1, 1, "free"))
	tx := pgtest.Begin(t, p.admin)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, tx, `SELECT FROM app.notes FOR UPDATE`)
	list := func(wanted consistency.Position) error {
		_, _, err := p.List(t.Context(), consistency.NewReader(p.waiters), p.writer, require(t, consistency.Request{}, wanted), p)
		return err
	}
	if err := list(at("a/1", 1, 2)); !errors.Is(err, txn.ErrLocked) {
		t.Errorf("of the locked row: %v", err)
	}
	if err := list(at("b/1", 1, 1)); err != nil {
		t.Errorf("of another: %v", err)
	}
	outcome, stale, err := p.List(t.Context(), consistency.NewReader(p.waiters), p.writer,
		require(t, consistency.Request{StaleIfError: true}, at("a/1", 1, 2)), p)
	if err != nil || outcome != consistency.Stale || len(stale) != 1 || p.last[0].Version != 1 {
		t.Errorf("of the locked row, stale rather than an error: %v, stale %v, %v", outcome, stale, err)
	}
}
