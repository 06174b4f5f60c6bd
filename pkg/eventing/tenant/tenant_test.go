package tenant

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/bounded"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestReadWithoutRowsKeepsItsStatements counts the plans of a statement: those of a statement
// that was prepared again begin at 0.
func TestReadWithoutRowsKeepsItsStatements(t *testing.T) {
	t.Parallel()
	made := pgtest.New(t)
	db := made.Pool(t, made.URL+"&pool_max_conns=1")
	var role string
	if err := db.QueryRow(t.Context(), `SELECT current_user`).Scan(&role); err != nil {
		t.Fatal(err)
	}
	const query, reads = `SELECT 1 WHERE $1::boolean`, 3
	for range reads {
		err := One(role, "acme").Read(t.Context(), db, func(rows pgx.Rows) error {
			_, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
			return err
		}, query, false)
		if !errors.Is(err, pgx.ErrNoRows) {
			t.Fatalf("Read = %v, want the error of its reader", err)
		}
	}
	var plans int
	err := db.QueryRow(t.Context(),
		`SELECT sum(generic_plans + custom_plans) FROM pg_prepared_statements WHERE statement = $1`, query).Scan(&plans)
	if err != nil || plans != reads {
		t.Errorf("the statement was planned or reused %d times since it was prepared, %v; want %d", plans, err, reads)
	}
}

func TestReadFailsWithTheDatabasesError(t *testing.T) {
	t.Parallel()
	made := pgtest.New(t)
	err := One("no_such_role", "acme").Read(t.Context(), made.Pool(t, made.URL), func(rows pgx.Rows) error {
		rows.Close()
		return nil
	}, `SELECT 1`)
	if err == nil {
		t.Error("Read = nil, want the error of a role that does not exist")
	}
}

// A connection that is lost without an error does not hold a read up for as long as its request may last.
func TestALostConnectionEndsARead(t *testing.T) {
	t.Parallel()
	made := pgtest.New(t)
	own := made.Pool(t, made.URL)
	var role string
	if err := own.QueryRow(t.Context(), `SELECT current_user`).Scan(&role); err != nil {
		t.Fatal(err)
	}
	request, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for name, scope := range map[string]Scope{"one": One(role, "acme"), "every": Every} {
		t.Run(name, func(t *testing.T) {
			db, freeze := pgtest.Freezable(t, own)
			read := func() error {
				return scope.Read(request, db, func(rows pgx.Rows) error {
					_, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
					return err
				}, `SELECT 1`)
			}
			if err := read(); err != nil {
				t.Fatal(err)
			}
			freeze()
			if err := read(); !errors.Is(err, bounded.ErrLimit) || request.Err() != nil {
				t.Errorf("Read = %v, want %v", err, bounded.ErrLimit)
			}
		})
	}
}
