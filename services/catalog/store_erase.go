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

// countCopy counts a user's rows that are not tombstones, in the copy of a rebuild. Without a rebuild the
// result is 0.
func (t userTable) countCopy(ctx context.Context, db bounded.Pool, user uuid.UUID) (n int64, err error) {
	statement := t.sql(`SELECT count(*) FROM {copy} WHERE {user} = $1 AND deleted_at IS NULL`)
	err = db.Statement("count "+t.name+" in the copy", statement, user).Scan(ctx, &n)
	if isUndefinedTable(err) {
		return 0, nil
	}
	return n, err
}

// deleteCopies deletes rows of a user in the copy of a rebuild. These are the rows whose counterparts in the
// served table are tombstones. deleteCopies writes the tombstones to the served table once more, and the
// rebuild's trigger copies them. The copy lacks a deletion if the exchange has made it out of the table that
// was served before, and the new served table got the tombstone from the owner's rows: the event of the
// deletion then changed nothing, so the trigger copied nothing. If another transaction has locked one of the
// rows, deleteCopies stops, and returns nil.
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
