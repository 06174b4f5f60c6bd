package rig

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/lab/bench/measure"
)

// TestAFailureOfPostgresIsNoMissingInstallation gives Postgres no directory for
// its data.
func TestAFailureOfPostgresIsNoMissingInstallation(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	t.Setenv("DATABASE_URL", "")
	_, ofModel := StartReadModel(t.Context())
	_, ofDatabase := new(Postgres).Fresh(t.Context())
	for name, err := range map[string]error{"StartReadModel": ofModel, "Fresh": ofDatabase} {
		if errors.Is(err, postgres.ErrNotInstalled) {
			t.Skipf("Postgres is not installed here: %v", err)
		}
		if err == nil || errors.Is(err, measure.ErrMissing) {
			t.Errorf("%s = %v, want an error that leaves nothing out", name, err)
		}
	}
}

func TestAMissingInstallationLeavesOut(t *testing.T) {
	t.Parallel()
	missing := fmt.Errorf("start postgres: %w: none found here", postgres.ErrNotInstalled)
	if err := leftOutIfMissing(missing); !errors.Is(err, measure.ErrMissing) {
		t.Errorf("error = %v, want one that leaves the measurement out", err)
	}
	if err := leftOutIfMissing(nil); err != nil {
		t.Errorf("error = %v, want none", err)
	}
}
