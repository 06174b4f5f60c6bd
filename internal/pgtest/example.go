package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Example is a database for an Example function. go test gives such a function no testing.TB, so
// it can neither register a Cleanup nor end with Fatal. Therefore the example closes its
// database, and a failure of this package panics.
type Example struct {
	// Pool connects as app_service.
	*pgxpool.Pool

	// Admin connects as the administrator.
	Admin string

	name string
}

// NewExample creates a database with the library's tables. tables is the SQL that creates further
// tables in the same schema. app_service may read and write the further tables.
func NewExample(tables string) *Example {
	e, err := newExample(context.Background(), tables)
	if err != nil {
		panic(fmt.Errorf("pgtest: %w", err)) //nolint:forbidigo // an example has no testing.TB to fail
	}
	return e
}

func newExample(ctx context.Context, tables string) (*Example, error) {
	db, err := shared.clone(ctx)
	if err != nil {
		return nil, err
	}
	admin, err := pgx.Connect(ctx, db.Admin)
	if err != nil {
		return nil, err
	}
	defer admin.Close(ctx)
	schema, role := quote(Library.Name), quote(Library.Role)
	_, err = admin.Exec(ctx, `SET search_path = `+schema+`;
		ALTER DEFAULT PRIVILEGES IN SCHEMA `+schema+` GRANT SELECT, INSERT, UPDATE ON TABLES TO `+role+`;`+tables)
	if err != nil {
		return nil, fmt.Errorf("create the example's tables: %w", err)
	}
	url, err := shared.as(ctx, Library.Role)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, withDatabase(url, db.name))
	if err != nil {
		return nil, err
	}
	return &Example{Pool: pool, Admin: db.Admin, name: db.name}, nil
}

// Close closes the pool, waits until its connections are returned, and drops the
// database.
func (e *Example) Close() {
	e.Pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	if err := shared.drop(ctx, e.name); err != nil {
		panic(fmt.Errorf("pgtest: %w", err)) //nolint:forbidigo // an example has no testing.TB to fail
	}
}
