package idempotency

import (
	"testing"

	"example.com/lockstep/internal/pgtest/pairtest"
)

// The answers to a user go, and those to others that name the user; no more, however many
// pages the table has.
func TestAnswersOfAUserAreRemoved(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
	db := pg.Pool(t, pg.VideoURL)
	if _, err := db.Exec(t.Context(), `
		INSERT INTO idempotency_keys (principal, operation, key, request_hash, response)
		SELECT CASE n % 3 WHEN 0 THEN 'user:a' ELSE 'user:admin' END, 'op', n::text, '',
		       convert_to(CASE n % 3 WHEN 2 THEN '{"uploader_id": "id-of-a"}' ELSE '{"uploader_id": "id-of-b"}' END || repeat(' ', 500), 'UTF8')
		  FROM generate_series(1, 9000) n`); err != nil {
		t.Fatal(err)
	}
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
