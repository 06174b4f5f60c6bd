package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/pressly/goose/v3"
)

// ErrReplaced is the error of a migration with a number that the schema has applied as another file. Without this
// error the migration would never run, because goose compares numbers only.
var ErrReplaced = errors.New("the schema has applied another file under the number of a migration")

// hasNames is a SQL condition that the schema has the table of names. Before migration 108 it has none.
const hasNames = `SELECT to_regclass('migration_files') IS NOT NULL`

// compareNames returns ErrReplaced if a migration of p was applied under another name. A number without a name is fine: it
// was applied before the schema had names.
func (s Schema) compareNames(ctx context.Context, db *sql.DB, p *goose.Provider) error {
	var there bool
	if err := db.QueryRowContext(ctx, hasNames).Scan(&there); err != nil || !there {
		return err
	}
	numbers, names := filesOf(p)
	var replaced string
	// A migration that was taken back, or was never applied, has a name and no version. Another file may have its number.
	err := db.QueryRowContext(ctx, `
		SELECT coalesce(string_agg(format('%s.%s is %s, and this release has %s', $3::text, number, m.file, f.file), '; ' ORDER BY number), '')
		  FROM unnest($1::bigint[], $2::text[]) AS f (number, file)
		  JOIN migration_files AS m USING (number)
		 WHERE m.file <> f.file
		   AND EXISTS (SELECT FROM `+versions+` AS v WHERE v.version_id = number AND v.is_applied)`, numbers, names, s.Name).Scan(&replaced)
	switch {
	case err != nil:
		return fmt.Errorf("read the names of the applied migrations: %w", err)
	case replaced != "":
		return fmt.Errorf("%w: %s: give the file of this release a number that no database has applied", ErrReplaced, replaced)
	}
	return nil
}

// recordTime bounds recordNames. If it fails, the next Up records the names.
const recordTime = 10 * time.Second

// recordNames writes the names of the migrations of p, also if ctx has ended. compareNames has returned nil before, so a name that
// differs is that of a migration which is not applied: it was taken back, or another release has tried it.
func recordNames(ctx context.Context, db *sql.DB, p *goose.Provider) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	var there bool
	if err := db.QueryRowContext(ctx, hasNames).Scan(&there); err != nil || !there {
		return err
	}
	numbers, names := filesOf(p)
	_, err := db.ExecContext(ctx, `
		INSERT INTO migration_files AS m (number, file) SELECT f.number, f.file FROM unnest($1::bigint[], $2::text[]) AS f (number, file)
		    ON CONFLICT (number) DO UPDATE SET file = excluded.file WHERE m.file <> excluded.file`, numbers, names)
	if err != nil {
		return fmt.Errorf("record the names of the migrations: %w", err)
	}
	return nil
}

// filesOf returns the numbers and the names of the files of p.
func filesOf(p *goose.Provider) (numbers []int64, names []string) {
	for _, source := range p.ListSources() {
		numbers, names = append(numbers, source.Version), append(names, path.Base(source.Path))
	}
	return numbers, names
}
