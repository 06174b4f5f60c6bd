package rebuild_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/rebuild"
)

// While a rebuild is on its way, its copy has each row that the service writes, in the
// transaction that writes it; after the exchange the table of before has.
func TestTheCopyFollows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	lives := func() {
		t.Helper()
		id := newID()
		f.exec(t, `INSERT INTO owned_one (a, body, version, updated_at) VALUES ($1, 'second', 3, '2026-01-02')`, id)
		for range 2 { // the second time the row is there
			f.serve(t, `INSERT INTO one (a, body, version, updated_at) VALUES ($1, 'first', 1, '2026-01-02')
				ON CONFLICT (a) DO UPDATE SET body = 'again', version = one.version + 1`, id)
		}
		f.serve(t, `UPDATE one SET body = 'second', version = version + 1 WHERE a = $1`, id)
		f.exec(t, `UPDATE owned_two SET body = body || '!', version = version + 1`)
		f.serve(t, `UPDATE two SET body = body || '!', version = version + 1`)
		gone := ask[string](t, f, `DELETE FROM owned_one WHERE a = (SELECT a FROM owned_one WHERE body LIKE 'body%' LIMIT 1) RETURNING a::text`)[0]
		f.exec(t, `DELETE FROM one WHERE a = $1`, gone)
		for at, copied := range map[string]string{"one": "c.a IS NOT NULL OR s.body = 'second'", "two": "true"} {
			differ := ask[string](t, f, `SELECT concat(s, ' ', c) FROM `+at+` AS s LEFT JOIN `+at+`_shadow AS c USING (a)
				WHERE s IS DISTINCT FROM c AND (`+copied+`)`)
			if len(differ) > 0 {
				t.Errorf("%s: %d rows differ from their copies, such as %s", at, len(differ), differ[0])
			}
		}
		if n := ask[int64](t, f, `SELECT count(*) FROM one_shadow WHERE a = $1`, gone)[0]; n > 0 {
			t.Errorf("%d deleted rows have copies", n)
		}
	}
	steps := 0
	f.at = func(step string) {
		if strings.HasPrefix(step, "fill") || step == "begin comparing type two" {
			steps++
			lives()
		}
	}
	f.run(t)
	if steps != 3 {
		t.Errorf("%d steps, want 3", steps)
	}
	f.at = func(string) {}
	lives()
	if err := f.Rollback(t.Context(), ada); err != nil {
		t.Fatal(err)
	}
	lives()
}

// A table whose mirror is disabled is not exchanged.
func TestAMirrorThatFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	f.exec(t, `CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`)
	f.at = func(step string) {
		if step == "begin comparing type one" {
			f.exec(t, `CREATE TRIGGER lose BEFORE INSERT OR UPDATE ON one_shadow FOR EACH ROW EXECUTE FUNCTION lose()`)
			f.serve(t, `UPDATE one SET version = version + 1`)
		}
	}
	if _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); !errors.Is(err, rebuild.ErrMirror) && !errors.Is(err, rebuild.ErrShape) {
		t.Errorf("%v", err)
	}
	f.phase(t, rebuild.Comparing)
}

// An event that changes a part of a damaged row leaves the rest damaged, in the copy too, also
// after the comparison of the copy. After the rebuild the row is its owner's.
func TestDamageThatIsCopied(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50)
	f.exec(t, `UPDATE one SET body = 'wrong'`)
	changed := int64(0)
	f.at = func(step string) {
		if step == "begin comparing type two" { // one is compared
			f.exec(t, `UPDATE owned_one SET version = version + 1, created_at = '2026-01-02' WHERE version < 3`)
			f.serve(t, `UPDATE one SET version = version + 1, created_at = '2026-01-02' WHERE version < 3`)
			changed = ask[int64](t, f, `SELECT count(*) FROM one_shadow WHERE body = 'wrong'`)[0]
		}
	}
	r := f.run(t)
	if changed != 20 || r.RepairedAfter != 20 {
		t.Errorf("the copy had %d damaged rows, and %d were repaired after the exchange; want 20 of 50", changed, r.RepairedAfter)
	}
	f.same(t, "one", "two")
}

// A row of a later epoch is later than one of a higher version: it is carried over.
func TestARowOfALaterEpochIsCarried(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50)
	f.exec(t, `UPDATE present SET epoch = 2`)
	f.exec(t, `UPDATE one SET epoch = 2, version = 1, body = 'of epoch 2' WHERE version = 3`)
	f.run(t)
	f.same(t, "one", "two")
	if n := ask[int64](t, f, `SELECT count(*) FROM one WHERE epoch = 2`)[0]; n != 10 {
		t.Errorf("%d rows are of epoch 2, want 10", n)
	}
}

// A row that becomes newer in the shadow while it is carried over stays as it is. Otherwise the exchange would serve the older one.
func TestARowIsWrittenWhileItIsCarried(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 200)
	id := ask[string](t, f, `SELECT a::text FROM one LIMIT 1`)[0]
	f.exec(t, `UPDATE one SET version = 8 WHERE a = $1`, id)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var writer sync.WaitGroup
	write := func() {
		f.exec(t, `UPDATE owned_one SET version = 9, body = 'newer' WHERE a = $1`, id)
		tx, err := f.admin.Begin(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := tx.Exec(t.Context(), `UPDATE one SET version = 9, body = 'newer' WHERE a = $1`, id); err != nil {
			t.Error(err)
		}
		writer.Go(func() { // the row of the shadow is locked until carry has met it
			for waits := false; !waits; {
				err := f.admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
				if err != nil {
					t.Error(err)
					break
				}
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wrote := false
	f.at = func(step string) {
		switch {
		case step == "fill two" && !wrote: // the first table is filled
			wrote = true
			write()
		case step == "begin comparing type one":
			if got := ask[string](t, f, `SELECT version || ' ' || body FROM one_shadow WHERE a = $1`, id)[0]; got != "9 newer" {
				t.Errorf("the shadow has %q, want the newer row", got)
			}
		}
	}
	f.run(t)
	writer.Wait()
	f.same(t, "one", "one_shadow")
}

// Rows are carried over from each page of a long table.
func TestRowsOfSeveralPagesAreCarried(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	for _, table := range []string{"owned_one", "one"} {
		f.exec(t, `INSERT INTO `+table+` (a, body, version, updated_at)
			SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'body', 1, now() - interval '1 h' FROM generate_series(1, 20100) AS n`)
	}
	const last = `(SELECT a FROM one WHERE last_event_id IS NULL ORDER BY a DESC LIMIT 1)`
	f.exec(t, `UPDATE one SET version = 2 WHERE a = `+last) // which the owner has lost
	carried := int64(0)
	f.at = func(step string) {
		if step == "begin comparing type one" {
			carried = ask[int64](t, f, `SELECT version FROM one_shadow WHERE a = `+last)[0]
		}
	}
	f.run(t)
	if carried != 2 {
		t.Errorf("the last row is of version %d, want 2", carried)
	}
	f.same(t, "one")
}
