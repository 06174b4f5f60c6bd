package inbox

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// shadowSchema is the second copy of the items that a rebuild fills, and the mirror: a trigger
// that copies each item that is written. It stands for package rebuild, which this package
// cannot import, and has the same rules.
const shadowSchema = `
	CREATE TABLE app.item_shadow (LIKE app.item INCLUDING ALL);
	GRANT SELECT, INSERT, UPDATE, DELETE ON app.item_shadow TO app_service;
	CREATE FUNCTION app.mirror_items() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
	  INSERT INTO app.item_shadow SELECT id, epoch, version, deleted, shelf, label, event_id, at FROM after_rows ORDER BY id
	  ON CONFLICT (id) DO UPDATE SET (epoch, version, deleted, shelf, label, event_id, at) =
	    ROW(excluded.epoch, excluded.version, excluded.deleted, excluded.shelf, excluded.label, excluded.event_id, excluded.at);
	  RETURN NULL;
	END
	$$;
	CREATE TRIGGER mirror_inserted AFTER INSERT ON app.item REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION app.mirror_items();
	CREATE TRIGGER mirror_updated AFTER UPDATE ON app.item REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION app.mirror_items()`

// shadowItems are the Rows of the shadow.
type shadowItems struct{ items }

func (shadowItems) Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]item, error) {
	return lockItems(ctx, tx, "item_shadow", ids)
}

func (shadowItems) Upsert(ctx context.Context, tx pgx.Tx, steps []Step[item]) (written []string, err error) {
	for _, s := range steps {
		wrote, err := writeItem(ctx, tx, "item_shadow", s)
		if err != nil {
			return nil, err
		}
		if wrote {
			written = append(written, s.ID)
		}
	}
	return written, nil
}

// rebuild reads pages for a shadow of half of the histories. The rebuild begins before the
// first delivery, so that its pages may be of any time.
func (h *history) rebuild() {
	if h.rnd.IntN(2) == 0 {
		return
	}
	var end time.Time
	for _, l := range h.lives {
		if l.next().After(end) {
			end = l.next()
		}
	}
	pages := h.pages
	h.pages = nil
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(h.lives)), 1+h.rnd.IntN(2)) {
		for range 1 + h.rnd.IntN(3) {
			h.read(h.between(epochStart, end), end, ids...)
		}
	}
	h.shadowPages, h.pages = h.pages, pages
}

// fillShadow writes a page into the shadow while events are applied, and returns it if it must
// be written again: the rebuild has died, or a consumer had the rows.
func (h *history) fillShadow(t *testing.T, p page, death int) (left []page) {
	t.Helper()
	var changes []Change
	for _, i := range p.rows {
		changes = append(changes, snapshotOf(i))
	}
	err := pgx.BeginFunc(t.Context(), h.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '100ms'`)
		if err == nil {
			_, err = AdvanceChanges(t.Context(), tx, shadowItems{}, changes, p.asOf)
		}
		if death == beforeCommit {
			err = cmp.Or(err, io.ErrUnexpectedEOF)
		}
		return err
	})
	pg, locked := errors.AsType[*pgconn.PgError](err)
	switch {
	case locked && pg.Code == "55P03", errors.Is(err, io.ErrUnexpectedEOF):
		return []page{p}
	case err != nil:
		t.Errorf("fill the shadow: %v", err)
	}
	h.met.shadowPages.Add(1)
	return nil
}

// judgeShadow requires that the shadow is no older than the items that were served, and, after
// a comparison with the owner, that it has the owner's states.
func (h *history) judgeShadow(t *testing.T) {
	t.Helper()
	if older := h.count(t, `
		SELECT count(*) FROM item AS i LEFT JOIN item_shadow AS s USING (id)
		 WHERE i.id LIKE $1 AND ((s.epoch, s.version) >= (i.epoch, i.version)) IS NOT TRUE`, h.name+"-%"); older > 0 {
		t.Errorf("%d items of the shadow are older than those that were served, in history %s", older, h.name)
	}
	for id := range h.lives {
		if !h.equalsOwner(t, id) {
			h.met.shadowRepairs.Add(1)
			h.replaceShadow(t, id)
		}
		if !h.equalsOwner(t, id) {
			t.Errorf("%s differs in the shadow of history %s: %v, want %v", id, h.name, h.inShadow(t, id), h.lives[id].last())
		}
	}
}

func (h *history) inShadow(t *testing.T, id string) (found item) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), h.db, func(tx pgx.Tx) error {
		rows, err := shadowItems{}.Lock(t.Context(), tx, []string{id})
		found = rows[id]
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// equalsOwner ignores the number of an epoch without an event of the item, as a comparison of
// package reconcile does.
func (h *history) equalsOwner(t *testing.T, id string) bool {
	t.Helper()
	found, last := h.inShadow(t, id), h.lives[id].last()
	if found.Version == last.Version && found.EventID == last.EventID {
		found.Epoch = last.Epoch
	}
	return found.String() == last.String()
}

// replaceShadow repairs a row that differs.
func (h *history) replaceShadow(t *testing.T, id string) {
	t.Helper()
	l := h.lives[id]
	seen := shadowItems{}.Position(h.inShadow(t, id))
	if err := pgx.BeginFunc(t.Context(), h.db, func(tx pgx.Tx) error {
		_, err := ReplaceChanges(t.Context(), tx, shadowItems{}, []Change{snapshotOf(l.now())}, map[string]Position{id: seen}, l.next().Add(time.Hour))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
