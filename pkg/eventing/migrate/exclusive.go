package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

// unlockTime bounds the release of the lock. If the release fails, the lock ends with its session.
const unlockTime = 5 * time.Second

// lockPause is the pause between two attempts to get the lock.
var lockPause = backoff.Policy{Base: 50 * time.Millisecond, Cap: time.Second}

// Lock is the SQL expression for the key of the advisory lock that Up holds on a schema. Package
// rebuild tries the same lock when it creates its tables. Without the lock, a migration and a rebuild could
// each look for the other one at the same time, and both begin. The key stays a hashtext, of 32 bits,
// because a process of an older release may be running, and has to compute the same key.
const Lock = `hashtext('lockstep migrate ' || current_schema())`

// IndexLock is the SQL expression of the lock that a service holds in a session while it creates an index
// outside of its migrations. No rebuild begins meanwhile (package rebuild): only the served table would get the
// index, and a rebuild exchanges no tables with different indexes. Up does not take this lock, so that an
// index that takes long holds up no other Up. The key is that of older releases.
const IndexLock = `hashtext('lockstep search index')`

// exclusive runs do while no other Up runs, and while no rebuild begins. It tries the lock again
// and again, and does not wait for the lock in a statement. Such a statement would have a snapshot,
// and a CREATE INDEX CONCURRENTLY in the process that has the lock would wait for the end of that
// snapshot. A rebuild holds the lock for milliseconds, and another Up holds it until that Up ends.
// ctx bounds the attempts.
func (s Schema) exclusive(ctx context.Context, db *sql.DB, do func() error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range lockPause.Attempts(ctx) {
		var got bool
		if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock(`+Lock+`)`).Scan(&got); err != nil {
			return fmt.Errorf("lock the migrations of schema %s: %w", s.Name, err)
		}
		if got {
			return errors.Join(do(), unlock(ctx, conn))
		}
	}
	return ctx.Err()
}

// unlock releases the lock before Up returns. Otherwise the server would release it when it ends the
// session, which may be after Up has returned.
func unlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
	defer cancel()
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock(`+Lock+`)`)
	return err
}
