package rig

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/lab/bench/measure"
)

// TestAFailureOfPostgresIsNoMissingInstallation gives Postgres no directory for
// its data. The database of the user's shell is not measured instead.
func TestAFailureOfPostgresIsNoMissingInstallation(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TEST_DATABASE_URL", "")
	t.Setenv("DATABASE_URL", "://of the user")
	_, ofModel := StartReadModel(t.Context())
	_, ofDatabase := new(Postgres).Fresh(t.Context())
	for name, err := range map[string]error{"StartReadModel": ofModel, "Fresh": ofDatabase} {
		if errors.Is(err, postgres.ErrNotInstalled) {
			t.Skipf("Postgres is not installed here: %v", err)
		}
		if err == nil || errors.Is(err, measure.ErrMissing) || strings.Contains(err.Error(), "DATABASE_URL") {
			t.Errorf("%s = %v, want an error of the private server that leaves nothing out", name, err)
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
