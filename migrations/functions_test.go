package migrations_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/migrations"
)

// In some databases the default privileges take the right to call new functions from PUBLIC. The roles of a service have
// that right themselves, on each function that their statements name.
func TestFunctionsNeedNoRightOfPublic(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	admin := db.Pool(t, db.Admin)
	pgtest.Exec(t, admin, `REVOKE ALL ON ALL FUNCTIONS IN SCHEMA video, catalog FROM PUBLIC`)
	for _, s := range []migrations.Service{migrations.Video, migrations.Catalog} {
		for role, names := range map[string]string{s.Role(): "%", s.RequestRole(): "%refuses%"} {
			rows, _ := admin.Query(t.Context(), `
				SELECT oid::regprocedure::text FROM pg_proc
				 WHERE pronamespace = $1::text::regnamespace AND prorettype <> 'trigger'::regtype AND proname LIKE $2
				   AND proname <> 'confine_to_tenant' AND NOT has_function_privilege($3, oid, 'EXECUTE')`, string(s), names, role)
			denied, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil || len(denied) > 0 {
				t.Errorf("%s may not call %q (%v)", role, slices.Sorted(slices.Values(denied)), err)
			}
		}
	}
	const unused = `SELECT outbox_refuses_epoch(1, 1) FROM outbox_epochs WHERE epoch < 0` // the right is needed nevertheless
	if _, err := db.Pool(t, db.VideoURL).Exec(t.Context(), unused); err != nil {
		t.Error(err)
	}
}
