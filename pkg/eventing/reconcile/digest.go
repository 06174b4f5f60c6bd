package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/bounded"
)

// statementTimeout bounds each statement, both in the client and in the database.
const statementTimeout = 10 * time.Second

// Part implements Owner.
func (t *Table) Part(ctx context.Context, d Definition, from string) (p Part, err error) {
	if err := t.check(d, from); err != nil {
		return p, err
	}
	p.Leaves, p.Answer, err = collect[Leaf](ctx, t, "digest", t.sql(d, `
		SELECT min(id COLLATE "C") AS "from", count(*) AS rows, {sum} AS digest
		  FROM (SELECT {id} AS id, {hash} AS hash, row_number() OVER (ORDER BY {key}) - 1 AS n
		          FROM {table} WHERE ({key}) >= {lower} ORDER BY {key} LIMIT $2 + 1) AS part
		 GROUP BY n / $3 ORDER BY 1`), from, PartRows, leafRows)
	if err != nil {
		return Part{}, err
	}
	p.Until = t.End()
	if len(p.Leaves) > PartRows/leafRows { // the last leaf is the row behind the part
		last := len(p.Leaves) - 1
		p.Leaves, p.Until = p.Leaves[:last], p.Leaves[last].From
	}
	if len(p.Leaves) == 0 {
		p.Leaves = []Leaf{{}}
	}
	p.Leaves[0].From = from // the reader's rows before the owner's first row belong to this leaf
	return p, nil
}

// rowColumns are the columns of a Row.
const rowColumns = `{id} AS id, version, {epoch} AS epoch, {event} AS event_id, deleted_at IS NOT NULL AS deleted, {digest} AS digest,
		       least(greatest(updated_at, '4713-01-02 BC'), '294276-12-31') AS at`

// Page implements Owner. A Go program cannot read an infinite time, so Page returns the first or
// the last finite time instead.
func (t *Table) Page(ctx context.Context, d Definition, r Range) (p Page, err error) {
	if err := t.check(d, r.From, r.Until); err != nil {
		return p, err
	}
	p.Rows, p.Answer, err = collect[Row](ctx, t, "list digests of", t.sql(d, `
		SELECT `+rowColumns+`
		  FROM {table} WHERE ({key}) >= {lower} AND ({key}) < {upper} ORDER BY {key} LIMIT $3 + 1`), r.From, r.Until, PartRows)
	if err != nil {
		return Page{}, err
	}
	p.Until = r.Until
	if len(p.Rows) > PartRows {
		p.Rows, p.Until = p.Rows[:PartRows], p.Rows[PartRows].ID
	}
	return p, nil
}

// Row returns the row, or the tombstone, with this id. If the table has neither, Row returns the zero Row. The
// error of a text that is no id of the table is ErrID.
func (t *Table) Row(ctx context.Context, id string) (Row, error) {
	if err := t.Key.check(id); err != nil {
		return Row{}, err
	}
	p, err := t.Page(ctx, t.Definition(), Only(id))
	if err != nil || len(p.Rows) == 0 {
		return Row{}, err
	}
	return p.Rows[0], nil
}

// standing is the Standing of the table's rows. The setting of the time zone holds until tx ends.
func (t *Table) standing(ctx context.Context, tx pgx.Tx, seen []Row) (same []Row, err error) {
	sql := t.sql(t.Definition(), `SELECT `+rowColumns+` FROM {table} WHERE ({key}) = {lower}`)
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('TimeZone', 'UTC', true)`)
	for _, was := range seen {
		b.Queue(sql, was.ID).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, pgx.RowToStructByName[Row])
			if len(found) == 0 {
				found = []Row{{}}
			}
			if err == nil && found[0].stands(was) {
				same = append(same, was)
			}
			return err
		})
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read %s again: %w", t.name, err)
	}
	return same, nil
}

// own is a leaf of the reader's table. N is the index of the owner's leaf for the same range in Part.Leaves.
type own struct {
	N      int
	Rows   int64
	Digest string
	Epoch  int64
}

// leaves digests the table's rows in the ranges of p, which begins at the id from. If the table has
// many more rows in these ranges than the owner, leaves reads only a part of its rows. complete
// is true if leaves has read all rows in these ranges.
func (t *Table) leaves(ctx context.Context, d Definition, from string, p Part) (found []own, complete bool, err error) {
	bounds := make([]string, len(p.Leaves)-1)
	for i := range bounds {
		bounds[i] = p.Leaves[i+1].From
	}
	if err := t.check(d, append([]string{from, p.Until}, bounds...)...); err != nil {
		return nil, false, err
	}
	const most = 2 * PartRows
	found, _, err = collect[own](ctx, t, "digest", t.sql(d, `
		SELECT width_bucket(id COLLATE "C", $3::text[]) AS n, count(*) AS rows, {sum} AS digest, max(epoch) AS epoch
		  FROM (SELECT {id} AS id, {hash} AS hash, {epoch} AS epoch
		          FROM {table} WHERE ({key}) >= {lower} AND ({key}) < {upper} ORDER BY {key} LIMIT $4) AS part
		 GROUP BY 1 ORDER BY 1`), from, p.Until, bounds, most)
	if err != nil {
		return nil, false, err
	}
	rows := int64(0)
	for _, leaf := range found {
		rows += leaf.Rows
	}
	return found, rows < most, nil
}

// Estimate returns about how many rows the table has, by the planner's statistics.
func (t *Table) Estimate(ctx context.Context) (rows int64, err error) {
	err = bounded.Pool{DB: t.db, Limit: statementTimeout}.Statement("estimate "+t.name,
		`SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = $1::text::regclass`, t.name).Scan(ctx, &rows)
	return rows, err
}

// collect runs a statement with t.query and returns its rows. An error of collect begins with name.
func collect[T any](ctx context.Context, t *Table, name, sql string, args ...any) (all []T, a Answer, err error) {
	a, err = t.query(ctx, func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	}, sql, args...)
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, t.name, err)
	}
	return all, a, err
}

// query runs a statement, and passes its rows to read. Times are in UTC, because they become text
// in the digests. The time of the answer is read before the rows, so that everything that had
// committed by that time is in the rows.
func (t *Table) query(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) (a Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var asOf *time.Time
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('TimeZone', 'UTC', true), set_config('statement_timeout', $1, true)`, statementTimeout.String())
	b.Queue(`SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() ELSE clock_timestamp() END`).
		QueryRow(func(row pgx.Row) error { return row.Scan(&asOf) })
	if t.epoch != ColumnEpoch {
		b.Queue(`SELECT ` + t.epoch).QueryRow(func(row pgx.Row) error { return row.Scan(&a.Epoch) })
	}
	b.Queue(sql, args...).Query(read)
	err = pgx.BeginTxFunc(ctx, t.db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, b).Close()
	})
	if asOf != nil {
		a.AsOf = *asOf
	}
	return a, err
}

// sql fills in the parts of a statement that depend on the table. {lower} is the key of the id in
// $1, and {upper} the key of the id in $2. The fields are sorted, whatever their order in d,
// because otherwise a connection would keep another statement for each order.
func (t *Table) sql(d Definition, statement string) string {
	fields := append([]string{"created_at"}, slices.Sorted(slices.Values(d.Fields))...)
	text := fmt.Sprintf(`json_build_array(%s, version, updated_at, deleted_at,
		CASE WHEN deleted_at IS NULL THEN json_build_array(%s) END)::text`, t.IDExpr(), strings.Join(fields, ", "))
	return strings.NewReplacer(
		"{table}", t.name, "{key}", strings.Join(t.Key, ", "), "{id}", t.IDExpr(), "{epoch}", t.epoch,
		"{lower}", t.KeyExpr("$1"), "{upper}", t.KeyExpr("$2"),
		"{event}", `coalesce(last_event_id, '`+uuid.Nil.String()+`'::uuid)`,
		"{digest}", "md5("+text+")",
		"{hash}", "md5("+text+" || coalesce(last_event_id::text, ''))",
		"{sum}", `concat(sum(('x' || left(hash, 16))::bit(64)::bigint), ' ', sum(('x' || right(hash, 16))::bit(64)::bigint))`,
	).Replace(statement)
}
