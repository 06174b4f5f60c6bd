package idempotency

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
)

// The answers to a user go, and those to others that name the user; no more, however many
// pages the table has.
func TestAnswersOfAUserAreRemoved(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
	db := pg.Pool(t, pg.VideoURL)
	pgtest.Exec(t, db, `
		INSERT INTO idempotency_keys (principal, operation, key, request_hash, response)
		SELECT CASE n % 3 WHEN 0 THEN 'user:a' ELSE 'user:admin' END, 'op', n::text, '',
		       convert_to(CASE n % 3 WHEN 2 THEN '{"uploader_id": "id-of-a"}' ELSE '{"uploader_id": "id-of-b"}' END || repeat(' ', 500), 'UTF8')
		  FROM generate_series(1, 9000) n`)
	for _, want := range []int64{6000, 0} {
		if n, err := CountAnswers(t.Context(), db, "user:a", "id-of-a"); err != nil || n != want {
			t.Errorf("%d counted, %v, want %d", n, err, want)
		}
		if n, err := RemoveAnswers(t.Context(), db, "user:a", "id-of-a"); err != nil || n != want {
			t.Errorf("%d removed, %v, want %d", n, err, want)
		}
	}
	var left int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys WHERE principal = 'user:admin'`).Scan(&left); err != nil || left != 3000 {
		t.Errorf("%d are left, %v, want 3000", left, err)
	}
}

// An expired key may get a new answer while its old one is removed. The new one stays, unless it is to the user, too.
func TestANewAnswerStays(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
	db := pg.Pool(t, pg.VideoURL)
	admin := Request{principal: "user:admin", operation: "op", key: "k", hash: []byte("hash")}
	pgtest.Exec(t, db, `
		INSERT INTO idempotency_keys (principal, operation, key, request_hash, response, created_at)
		SELECT 'user:admin', 'op', CASE n WHEN 5000 THEN 'k' ELSE n::text END, '',
		       convert_to('{"uploader_id": "id-of-' || CASE n WHEN 5000 THEN 'a' ELSE 'c' END || '"}' || repeat(' ', 500), 'UTF8'), now() - interval '25 hours'
		  FROM generate_series(1, 9000) n`)
	write := pgtest.Begin(t, db)
	defer write.Rollback(t.Context())
	var b pgx.Batch
	if err := admin.Remember(&b, map[string]string{"uploader_id": "id-of-b"}); err != nil {
		t.Fatal(err)
	}
	if err := write.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	removed := make(chan int64, 1)
	go func() {
		n, err := RemoveAnswers(t.Context(), db, "user:a", "id-of-a")
		if err != nil {
			t.Error(err)
		}
		removed <- n
	}()
	for waits := false; !waits && len(removed) == 0; {
		waits = pgtest.Value[bool](t, db, `SELECT EXISTS (
			SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	}
	pgtest.End(t, write.Commit)
	if n := <-removed; n != 0 {
		t.Errorf("%d removed, want none", n)
	}
	var left string
	if err := db.QueryRow(t.Context(), `SELECT convert_from(response, 'UTF8') FROM idempotency_keys WHERE key = 'k'`).Scan(&left); err != nil ||
		!strings.Contains(left, "id-of-b") {
		t.Errorf("%q is left, %v, want the new answer", left, err)
	}
}
