package catalog

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/txn"
)

// userTable is a table that has rows of users. user is the column with the user's id.
type userTable struct {
	name, table, user string
	key               []string
}

var userTables = []userTable{
	{"videos", videoTable, "uploader_id", videoKey},
	{"engagements", engagementTable, "user_id", engagementKey},
}

// copyBatch bounds the rows, and with them the locks, of one statement.
const copyBatch = 500

// count counts a user's rows that are not tombstones.
func (t userTable) count(ctx context.Context, db bounded.Pool, user uuid.UUID) (n int64, err error) {
	err = db.Statement("count "+t.name, t.sql(`SELECT count(*) FROM {table} WHERE {user} = $1 AND deleted_at IS NULL`), user).Scan(ctx, &n)
	return n, err
}

// countCopy counts the same in the copy of a rebuild. Without a rebuild the result is 0.
func (t userTable) countCopy(ctx context.Context, db bounded.Pool, user uuid.UUID) (n int64, err error) {
	statement := t.sql(`SELECT count(*) FROM {copy} WHERE {user} = $1 AND deleted_at IS NULL`)
	err = db.Statement("count "+t.name+" in the copy", statement, user).Scan(ctx, &n)
	if isUndefinedTable(err) {
		return 0, nil
	}
	return n, err
}

// deleteCopies deletes a user's rows in the copy of a rebuild that are tombstones in the served table. It writes these
// tombstones once more, and the mirror of the rebuild copies them. The copy has such rows if the served table
// was the copy before, and has the deletion from the owner: its event then had no effect any more. Rows whose lock
// another transaction holds stay.
func (t userTable) deleteCopies(ctx context.Context, db bounded.Pool, user uuid.UUID) error {
	left, err := t.countCopy(ctx, db, user)
	for ; err == nil && left > 0; left -= copyBatch {
		_, err = db.Statement("delete "+t.name+" in the copy", t.sql(`
			WITH kept AS MATERIALIZED (
			  SELECT {key} FROM {copy} WHERE {user} = $1 AND deleted_at IS NULL
			), locked AS MATERIALIZED (
			  SELECT {key} FROM {table} WHERE ({key}) IN (SELECT {key} FROM kept) AND deleted_at IS NOT NULL
			   ORDER BY {key} LIMIT $2 FOR UPDATE
			)
			UPDATE {table} SET version = version WHERE ({key}) IN (SELECT {key} FROM locked)`), user, copyBatch).Exec(ctx)
	}
	if isUndefinedTable(err) || txn.IsLockTimeout(err) {
		return nil
	}
	return err
}

func (t userTable) sql(statement string) string {
	return strings.NewReplacer("{table}", t.table, "{copy}", rebuild.Shadow(t.table), "{user}", t.user, "{key}", strings.Join(t.key, ", ")).
		Replace(statement)
}

func isUndefinedTable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "42P01"
}
