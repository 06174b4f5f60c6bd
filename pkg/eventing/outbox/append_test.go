package outbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing"
)

func TestAppendCommitsAndRollsBackWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "kept", 1, 1)
	undone := errors.New("the business says no")
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		if err := Append(t.Context(), tx, nil, event("lost", 1), event("lost", 2)); err != nil {
			return err
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	if n := b.count(t, unpublished); n != 1 {
		t.Errorf("%d rows, want the committed one only", n)
	}
}

func TestAppendRunsTheStatementsItTravelsWith(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		var one int
		batch.Queue(`SELECT 1`).QueryRow(func(row pgx.Row) error { return row.Scan(&one) })
		if err := Append(t.Context(), tx, batch, event("a", 1)); err != nil {
			return err
		}
		if one != 1 {
			t.Error("the caller's statement has not run when Append returns")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(`SELECT 1/0`)
		return Append(t.Context(), tx, batch, event("a", 2))
	})
	if err == nil {
		t.Error("the caller's statement failed and Append did not say so")
	}
	if n := b.count(t, unpublished); n != 1 {
		t.Errorf("%d rows, want 1: the failed statement's event must not be there", n)
	}
}

func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 1)
	appendOne := func(e eventing.Event) error {
		return pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return Append(t.Context(), tx, nil, e) })
	}
	large := event("a", 2)
	large.Payload = make([]byte, MaxPayloadBytes+1)
	if err := appendOne(large); err == nil || !strings.Contains(err.Error(), "payload:") {
		t.Errorf("large payload: %v, want an error that names it", err)
	}
	var pg *pgconn.PgError
	if err := appendOne(event("a", 1)); !errors.As(err, &pg) || pg.Code != "23505" {
		t.Errorf("second event for one version: %v, want SQLSTATE 23505", err)
	}
	if n := b.count(t, unpublished); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}
