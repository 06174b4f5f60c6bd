package migrations_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// waitForLock is the longest wait of a new migration for a lock. It is below the two seconds for
// which a write waits behind the migration, and above Postgres' deadlock_timeout.
const waitForLock = 1500 * time.Millisecond

// waitLonger are the released migrations that wait longer.
var waitLonger = []string{
	"00051_last_event.sql", "00055_last_event_by_epoch.sql", "00104_policies_of_requests.sql", "00205_pending_by_range.sql",
	"00206_previous_event.sql", "00210_tenants.sql", "00211_relays_tenants.sql", "00402_forget_records.sql", "01000_revision.sql",
	"01000_tenants.sql", "01002_counters.sql", "01020_tenants.sql",
}

// waitForever are the released migrations that change a table and do not bound their wait.
var waitForever = []string{"00202_outbox_at_scale.sql", "00302_inbox_discarded.sql", "00303_inbox_full_strength.sql", "00304_inbox_autovacuum.sql"}

var (
	lockTimeout = regexp.MustCompile(`SET LOCAL lock_timeout = '([^']+)'`)
	changed     = regexp.MustCompile(`(?m)^(?:ALTER|DROP) TABLE (?:IF EXISTS )?([\w.]+)`)
)

// waitsForever reports whether a migration changes a table that it has not created, without a bound of
// its wait. Without a transaction SET LOCAL has no effect, so such a migration is not judged.
func waitsForever(text string) bool {
	up, _, _ := strings.Cut(text, "-- +goose Down")
	if strings.Contains(up, "-- +goose NO TRANSACTION") || lockTimeout.MatchString(up) {
		return false
	}
	return slices.ContainsFunc(changed.FindAllStringSubmatch(up, -1), func(found []string) bool {
		return !strings.Contains(up, "CREATE TABLE "+found[1]+" (")
	})
}

// released says what to do about a migration that a database has already.
const released = "; a released migration is never edited: name it in waitLonger or waitForever"

// Writes wait behind a migration that waits for a table, and fail if it waits for longer than they do.
func TestNewMigrationsWaitForLessThanAWrite(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "../pkg/eventing/migrate"} {
		err := fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".sql") || slices.Contains(waitLonger, path.Base(name)) {
				return err
			}
			text, err := fs.ReadFile(os.DirFS(dir), name)
			if waitsForever(string(text)) && !slices.Contains(waitForever, path.Base(name)) {
				t.Errorf("%s changes a table without SET LOCAL lock_timeout = '%dms'%s", name, waitForLock.Milliseconds(), released)
			}
			for _, found := range lockTimeout.FindAllStringSubmatch(string(text), -1) {
				wait, invalid := time.ParseDuration(found[1])
				if invalid != nil || wait > waitForLock {
					t.Errorf("%s waits %s for a lock, want %v at most%s", name, found[1], waitForLock, released)
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
