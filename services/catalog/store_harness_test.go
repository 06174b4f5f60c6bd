package catalog

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/pkg/eventing/inbox"
)

// statements are those sent on a pool.
type statements struct {
	mu  sync.Mutex
	sql []string
}

func (s *statements) add(_ context.Context, _ *pgx.Conn, trip pgtest.Trip) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sent := range trip {
		s.sql = append(s.sql, sent.SQL)
	}
}

// take counts the statements that have part in them, and forgets all.
func (s *statements) take(parts ...string) (n []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range parts {
		count := 0
		for _, sql := range s.sql {
			if strings.Contains(sql, part) {
				count++
			}
		}
		n = append(n, count)
	}
	s.sql = nil
	return n
}

// store is the table of one type of aggregate. n orders its keys.
type store[S any] struct {
	inbox.Rows[S]

	table  string
	row    func(n int, version int64, mark int64) S
	marked string // the column that has the row's mark
	id     func(row S) string

	pool, admin *pgxpool.Pool
	sent        *statements
}

var storeKey = uuid.MustParse("018f0000-0000-7000-8000-000000000000")

// key is the id of the row n.
func key(n int) uuid.UUID {
	id := storeKey
	id[15] = byte(n)
	return id
}

func (s store[S]) open(t *testing.T) store[S] {
	t.Helper()
	pg := pairtest.New(t)
	s.admin, s.sent = pg.Pool(t, pg.Admin), &statements{}
	cfg := pgtest.Settings(t, pg.CatalogURL)
	cfg.ConnConfig.Tracer = &pgtest.Tracer{Before: s.sent.add}
	s.pool = pgtest.Open(t, cfg)
	return s
}

// upsert is Upsert in a transaction of its own, with the written ids in order.
func (s store[S]) upsert(ctx context.Context, steps ...inbox.Step[S]) (written []string, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		written, err = s.Upsert(ctx, tx, steps)
		return err
	})
	slices.Sort(written)
	return written, err
}

func (s store[S]) fresh(n int, mark int64) inbox.Step[S] {
	row := s.row(n, 1, mark)
	return inbox.Step[S]{ID: s.id(row), New: row}
}

func (s store[S]) step(n int, version, mark int64) inbox.Step[S] {
	row := s.row(n, version, mark)
	return inbox.Step[S]{ID: s.id(row), Old: s.row(n, version-1, mark), New: row}
}

// marks are the versions and marks in the table, by key.
func (s store[S]) marks(t *testing.T) (all []string) {
	t.Helper()
	rows, _ := s.pool.Query(t.Context(), `SELECT concat(version, ' ', `+s.marked+`) FROM `+s.table+` ORDER BY video_id`)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var videoStore = store[Video]{
	Rows: videos{}, table: "video_projection", marked: "duration_seconds", id: Video.id,
	row: func(n int, version, mark int64) Video {
		return Video{
			ID: key(n), UploaderID: uploader, DurationSeconds: mark,
			Versioned: Versioned{Version: version, Epoch: 1, CreatedAt: atp(1), UpdatedAt: at(version)},
		}
	},
}
