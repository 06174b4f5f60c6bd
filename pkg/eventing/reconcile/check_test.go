package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/reconcile"
)

// The table is longer than a part, so that its boundaries count.
func TestEqualTables(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2*reconcile.PartRows+100)
	if found, unsettled := p.check(t, reconcile.Options{}); len(found) > 0 || unsettled > 0 {
		t.Errorf("%d rows differ, %d unsettled", len(found), unsettled)
	}
	if p.rows != 2*reconcile.PartRows+100 || len(p.passed) != 3 || p.passed[2] != p.Reader.End() || p.owner.calls != 3 {
		t.Errorf("%d rows in %d calls, passed %v", p.rows, p.owner.calls, p.passed)
	}
	middle := p.passed[0]
	if found, _ := p.check(t, reconcile.Options{From: middle}); len(found) > 0 || p.rows != reconcile.PartRows+100 {
		t.Errorf("from the second part on: %d rows, %v differ", p.rows, found)
	}
}

func TestEmptyTables(t *testing.T) {
	t.Parallel()
	p := newPair(t, 0)
	if found, _ := p.check(t, reconcile.Options{}); len(found) > 0 {
		t.Errorf("empty tables: %v", found)
	}
	p.exec(t, `INSERT INTO app.copied SELECT gen_random_uuid(), gen_random_uuid(), '', NULL, 1, now(), now() - interval '1 h', NULL, NULL FROM generate_series(1, 9000)`)
	if found, _ := p.check(t, reconcile.Options{}); len(found) != 9000 || !strings.HasPrefix(found[0], "extra ") {
		t.Errorf("the owner has nothing, the reader 9000 rows: %d differ", len(found))
	}
	p.exec(t, `INSERT INTO app.owned SELECT a, b, body, due, version, created_at, updated_at, deleted_at, last_event_id FROM app.copied`)
	p.exec(t, `DELETE FROM app.copied`)
	if found, _ := p.check(t, reconcile.Options{}); len(found) != 9000 || !strings.HasPrefix(found[0], "missing ") {
		t.Errorf("the reader has nothing, the owner 9000 rows: %d differ", len(found))
	}
}

// Each fault is found as its kind, and those that are none are not.
func TestKinds(t *testing.T) {
	t.Parallel()
	p := newPair(t, 5000)
	p.Owner = &late{p.owner, -time.Minute} // so that a later epoch is certain without half a minute's wait
	var want []string
	damage := func(kind reconcile.Kind, sql string, args ...any) {
		t.Helper()
		if id := p.damage(t, sql, args...); kind != "" {
			want = append(want, string(kind)+" "+id)
		}
	}
	place := 0
	next := func() string { place += 31; return some(place) }
	damage(reconcile.Changed, `UPDATE app.copied SET body = NULL WHERE `+next())
	damage(reconcile.Changed, `UPDATE app.copied SET body = '' WHERE `+next())
	damage(reconcile.Changed, `UPDATE app.copied SET due = coalesce(due, now()) + interval '1 us' WHERE `+next())
	damage(reconcile.Changed, `UPDATE app.copied SET deleted_at = now() WHERE `+next())
	damage(reconcile.Changed, `UPDATE app.copied SET last_event_id = gen_random_uuid() WHERE `+next())
	damage(reconcile.Missing, `DELETE FROM app.copied WHERE `+next())
	damage(reconcile.Missing, `DELETE FROM app.copied WHERE (a, b) = (SELECT a, b FROM app.owned WHERE deleted_at IS NOT NULL ORDER BY a LIMIT 1)`)
	damage(reconcile.Behind, `UPDATE app.copied SET version = version - 1 WHERE `+next())
	damage(reconcile.Ahead, `UPDATE app.copied SET version = version + 1 WHERE `+next())
	damage(reconcile.Ahead, `UPDATE app.copied SET epoch = 2 WHERE `+next())
	insert := `INSERT INTO app.copied VALUES ($1, gen_random_uuid(), '', NULL, 3, now(), now() - interval '1 h', `
	damage(reconcile.Extra, insert+`NULL, NULL)`, "00000000-0000-0000-0000-000000000001")
	damage(reconcile.Extra, insert+`NULL, NULL)`, newID())
	damage(reconcile.Extra, insert+`NULL, NULL)`, "ffffffff-ffff-ffff-ffff-ffffffffffff")
	// No differences.
	damage("", insert+`now(), NULL)`, newID())                             // both say that there is none
	damage("", `UPDATE app.copied SET last_event_id = NULL WHERE `+next()) // unknown, as before the column
	damage("", `UPDATE app.copied SET body = 'gone' WHERE deleted_at IS NOT NULL AND (a, b) = (SELECT max(a::text)::uuid, max(b::text)::uuid FROM app.owned WHERE a = (SELECT a FROM app.owned WHERE deleted_at IS NOT NULL ORDER BY a DESC LIMIT 1))`)
	slices.Sort(want)
	if found, unsettled := p.check(t, reconcile.Options{Rate: 1_000_000}); !slices.Equal(found, want) || unsettled > 0 {
		t.Errorf("found %d, want %d:\n%s\nwant\n%s", len(found), len(want), strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
	left, err := p.Still(t.Context(), p.found)
	if err != nil || len(left) != len(want) {
		t.Errorf("of %d differences %d are left, %v", len(want), len(left), err)
	}
	// After `epoch bump` the owner has all rows in the new epoch.
	p.exec(t, `UPDATE app.present SET epoch = 3`)
	if found, _ := p.check(t, reconcile.Options{}); len(found) != len(want)-1 {
		t.Errorf("%d differences in a later epoch, want %d", len(found), len(want)-1)
	}
}

// A change that is on its way is no difference, wherever the check meets it, and the check
// ends when it has arrived.
func TestInFlight(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ early, late string }{
		"an update before the event": {
			early: `UPDATE app.owned SET body = 'new', version = version + 1, updated_at = now(), last_event_id = gen_random_uuid() WHERE ` + some(9),
			late:  `UPDATE app.copied c SET body = o.body, version = o.version, updated_at = o.updated_at, last_event_id = o.last_event_id FROM app.owned o WHERE (c.a, c.b) = (o.a, o.b)`,
		},
		"a new row before the event": {
			early: `INSERT INTO app.owned SELECT gen_random_uuid(), gen_random_uuid(), '', NULL, 1, now(), now(), NULL, NULL`,
			late:  `INSERT INTO app.copied SELECT ` + columns + ` FROM app.owned ON CONFLICT DO NOTHING`,
		},
		"a row newer than the answer": {
			early: `UPDATE app.copied SET version = version + 1, updated_at = now() WHERE ` + some(9),
			late:  `UPDATE app.owned o SET version = c.version, updated_at = c.updated_at FROM app.copied c WHERE (c.a, c.b) = (o.a, o.b)`,
		},
		"a row that a repair moved to an epoch that began after the answer": {
			early: `UPDATE app.copied SET epoch = 2 WHERE ` + some(9),
			late:  `UPDATE app.present SET epoch = 2`,
		},
		"a new row that the answer lacks": {
			early: `INSERT INTO app.copied SELECT gen_random_uuid(), gen_random_uuid(), '', NULL, 1, now(), now(), NULL, NULL`,
			late:  `INSERT INTO app.owned SELECT a, b, body, due, version, created_at, updated_at, deleted_at, last_event_id FROM app.copied ON CONFLICT DO NOTHING`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 200)
			p.exec(t, tc.early)
			p.owner.after = func(call int) {
				if call == 3 { // after the digest and the list, while it looks again
					p.exec(t, tc.late)
				}
			}
			if found, unsettled := p.check(t, reconcile.Options{Grace: long}); len(found) > 0 || unsettled > 0 || p.owner.calls < 3 {
				t.Errorf("after %d calls %v differ, %d unsettled", p.owner.calls, found, unsettled)
			}
		})
	}
}

// An event that does not come is a difference, although the owner's row changes on and on.
func TestNeverComes(t *testing.T) {
	t.Parallel()
	p := newPair(t, 200)
	change := `UPDATE app.owned SET version = version + 1, updated_at = now() WHERE ` + some(9)
	p.owner.before = func(int) { p.exec(t, change) }
	found, unsettled := p.check(t, reconcile.Options{Grace: time.Second})
	if len(found) != 1 || !strings.HasPrefix(found[0], "behind ") || unsettled > 0 {
		t.Errorf("%v differ, %d unsettled", found, unsettled)
	}
}

// A row that is never seen at rest is neither equal nor different.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	p := newPair(t, 200)
	p.owner.before = func(int) {
		p.exec(t, `UPDATE app.owned SET version = version + 1, updated_at = now() WHERE `+some(9))
	}
	p.owner.after = func(int) { // the reader follows, one version behind each answer
		p.exec(t, `UPDATE app.copied c SET version = o.version - 1, updated_at = now() - interval '1 ms' FROM app.owned o WHERE (c.a, c.b) = (o.a, o.b) AND c.version <> o.version`)
	}
	if found, unsettled := p.check(t, reconcile.Options{Grace: time.Second}); len(found) > 0 || unsettled != 1 {
		t.Errorf("%v differ, %d unsettled, want 1", found, unsettled)
	}
}

// Two builds with other fields are not compared. A reader may know fewer fields than the
// owner.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	p := newPair(t, 100)
	p.exec(t, `UPDATE app.copied SET due = NULL`)
	all := p.Reader
	p.Reader = reconcile.NewTable(nil, "copied", []string{"a", "b"}, columns+`, language`, reconcile.ColumnEpoch)
	_, err := p.Check(t.Context(), reconcile.Options{}, p)
	if !errors.Is(err, reconcile.ErrDefinition) || !strings.Contains(err.Error(), `"language"`) || len(p.found) > 0 {
		t.Errorf("a field that the owner does not know: %v, %d differ", err, len(p.found))
	}
	d := all.Definition()
	d.Encoding++
	if _, err := p.owner.Part(t.Context(), d, all.Start()); !errors.Is(err, reconcile.ErrDefinition) {
		t.Errorf("other rules: %v", err)
	}
	d = all.Definition()
	d.Fields = []string{"body"}
	mine, err := all.Page(t.Context(), d, reconcile.Range{From: all.Start(), Until: all.End()})
	owners, ownersErr := p.owner.Page(t.Context(), d, reconcile.Range{From: all.Start(), Until: all.End()})
	if err != nil || ownersErr != nil || len(mine.Rows) != 100 || mine.Rows[7].Digest != owners.Rows[7].Digest {
		t.Errorf("fewer fields: %v, %v", err, ownersErr)
	}
}

// The two builds are of two releases during a rollout. So the same rules give the same digests in all releases, and
// other rules need another number of Encoding.
func TestTheDigestsOfAnEncodingAreAContract(t *testing.T) {
	t.Parallel()
	p := newPair(t, 0)
	p.exec(t, `INSERT INTO app.owned VALUES
		('0190a5d0-0000-7000-8000-000000000001', '7d3c1f0e-5b7a-4c7e-9a64-0f2f6f3d5a11', 'a "body"', '2026-03-04 05:06:07.891+01', 3,
		 '2026-01-02 03:04:05.678901+00', '2026-02-03 04:05:06+00', NULL, '0190a5d0-0000-7000-8000-000000000002'),
		('0190a5d0-0000-7000-8000-000000000003', '7d3c1f0e-5b7a-4c7e-9a64-0f2f6f3d5a11', 'gone', NULL, 4,
		 '2026-01-02 03:04:05+00', '2026-02-03 04:05:06+00', '2026-02-03 04:05:06+00', NULL)`)
	d := p.Reader.Definition()
	if d.Encoding != 1 {
		t.Fatalf("the digests below are of the encoding 1, not %d", d.Encoding)
	}
	page, err := p.owner.Page(t.Context(), d, reconcile.Range{From: p.Reader.Start(), Until: p.Reader.End()})
	if err != nil || len(page.Rows) != 2 || page.Rows[0].Digest != "47549b82300838f3180f8de052056ecc" ||
		page.Rows[1].Digest != "e7e79ebfca56e32c58c77d513f685e7b" {
		t.Errorf("the rows are %+v, %v", page.Rows, err)
	}
	part, err := p.owner.Part(t.Context(), d, p.Reader.Start())
	if err != nil || len(part.Leaves) != 1 || part.Leaves[0].Digest != "-1985020300874410176 14656523566062152993" {
		t.Errorf("the leaves are %+v, %v", part.Leaves, err)
	}
}

func TestForgedIDs(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	d := p.Reader.Definition()
	for _, id := range []string{"", "x", newID(), newID() + ":" + newID() + ":" + newID(), strings.ToUpper(p.Reader.End()), p.Reader.End() + "' OR true"} {
		if _, err := p.Reader.Part(t.Context(), d, id); !errors.Is(err, reconcile.ErrID) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := p.Reader.Page(t.Context(), d, reconcile.Range{From: p.Reader.Start(), Until: id}); !errors.Is(err, reconcile.ErrID) {
			t.Errorf("up to %q: %v", id, err)
		}
	}
	d.Fields = []string{"body", "now()"}
	if _, err := p.Reader.Part(t.Context(), d, p.Reader.Start()); !errors.Is(err, reconcile.ErrDefinition) {
		t.Errorf("SQL in place of a field: %v", err)
	}
}

// confused gives other answers than asked for.
type confused struct {
	*reconcile.Table

	part func(p *reconcile.Part, from string)
	page func(p *reconcile.Page, in reconcile.Range)
}

func (c confused) Part(ctx context.Context, d reconcile.Definition, from string) (reconcile.Part, error) {
	p, err := c.Table.Part(ctx, d, from)
	c.part(&p, from)
	return p, err
}

func (c confused) Page(ctx context.Context, d reconcile.Definition, r reconcile.Range) (reconcile.Page, error) {
	p, err := c.Table.Page(ctx, d, r)
	c.page(&p, r)
	return p, err
}

// An owner that repeats itself does not keep a check going for ever, and one that leaves rows out does not hide them.
func TestAnOwnerThatAnswersAnotherQuestion(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]confused{
		"the same digests again":      {part: func(p *reconcile.Part, from string) { p.Until = from }},
		"digests of later rows":       {part: func(p *reconcile.Part, _ string) { p.Leaves[0].From = newID() + ":" + newID() }},
		"no digests":                  {part: func(p *reconcile.Part, _ string) { p.Leaves = nil }},
		"the same rows again":         {page: func(p *reconcile.Page, in reconcile.Range) { p.Until = in.From }},
		"rows of more than the range": {page: func(p *reconcile.Page, _ reconcile.Range) { p.Until = strings.Replace(p.Until, "f", "g", 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 10)
			p.exec(t, `UPDATE app.copied SET body = 'wrong'`)
			tc.Table = p.owner.Table
			if tc.part == nil {
				tc.part = func(*reconcile.Part, string) {}
			}
			if tc.page == nil {
				tc.page = func(*reconcile.Page, reconcile.Range) {}
			}
			p.Owner = tc
			if _, err := p.Check(t.Context(), reconcile.Options{}, p); err == nil || !strings.Contains(err.Error(), "no answer") {
				t.Errorf("the check ended with %v", err)
			}
		})
	}
}

// The session's time zone has no part in a digest.
func TestTimeZones(t *testing.T) {
	t.Parallel()
	p := newPair(t, 300)
	before, err := p.Reader.Part(t.Context(), p.Reader.Definition(), p.Reader.Start())
	if err != nil {
		t.Fatal(err)
	}
	p.exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET TimeZone = %L', current_database(), 'Asia/Tokyo'); END $$`)
	p.db.Reset() // so that the new sessions are in another zone
	after, err := p.Reader.Part(t.Context(), p.Reader.Definition(), p.Reader.Start())
	if err != nil || !slices.Equal(before.Leaves, after.Leaves) {
		t.Errorf("the digests differ, %v", err)
	}
}

// Of many rows that the owner does not have, one statement reads a part. The rows that it
// does not reach are not taken for equal, although the last range looks so.
func TestManyExtraRows(t *testing.T) {
	t.Parallel()
	p := newPair(t, 0)
	insert := func(table, head string, n int) {
		t.Helper()
		p.exec(t, `INSERT INTO app.`+table+` SELECT ($1 || lpad(n::text, 7, '0') || '-0000-4000-8000-000000000000')::uuid, '00000000-0000-4000-8000-000000000000', '', NULL,
			1, now(), now() - interval '1 h', NULL, NULL FROM generate_series(1, $2::int) AS n`, head, n)
	}
	insert("owned", "1", 64) // a range
	insert("owned", "3", 1)  // and the begin of another one
	p.exec(t, `INSERT INTO app.copied SELECT `+columns+` FROM app.owned`)
	const extra, behind = 2*reconcile.PartRows - 64 - 1, 5
	insert("copied", "2", extra)
	insert("copied", "4", behind)
	if found, _ := p.check(t, reconcile.Options{}); len(found) != extra+behind {
		t.Errorf("%d rows differ, want %d", len(found), extra+behind)
	}
}

// A row of the owner behind the reader's page is compared with the reader's row, on the next page.
func TestARowBehindTheReadersPage(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	p.exec(t, `UPDATE app.owned SET a = 'ffffffff-0000-4000-8000-000000000000', deleted_at = NULL`)
	p.exec(t, `UPDATE app.copied SET a = 'ffffffff-0000-4000-8000-000000000000', deleted_at = NULL`)
	p.exec(t, `INSERT INTO app.copied SELECT lpad(to_hex(n), 32, '0')::uuid, gen_random_uuid(), '', NULL, 1, now(), now() - interval '1 h', NULL, NULL
		FROM generate_series(1, $1::int) AS n`, reconcile.PartRows)
	found, _ := p.check(t, reconcile.Options{})
	if len(found) != reconcile.PartRows || slices.ContainsFunc(found, func(d string) bool { return !strings.HasPrefix(d, "extra ") }) {
		t.Errorf("%d differ, want %d rows that the owner does not have", len(found), reconcile.PartRows)
	}
}
