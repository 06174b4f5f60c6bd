package postgres

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// initialised returns the control file of a new data directory: each run of initdb gives
// it another identifier.
func initialised(t *testing.T, cache string) []byte {
	t.Helper()
	bin, err := findBinaries(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := newDirectory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.remove() })
	if err := (&Server{bin: bin, dir: dir}).initialise(t.Context(), cache); err != nil {
		t.Fatal(err)
	}
	control, err := os.ReadFile(filepath.Join(dir.data(), "global", "pg_control"))
	if err != nil {
		t.Fatal(err)
	}
	return control
}

func TestInitdbRunsOnceForAnInstallation(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "cache")
	first := initialised(t, cache)
	if !bytes.Equal(initialised(t, cache), first) {
		t.Error("the second start ran initdb")
	}
	archive := onlyFile(t, cache)

	// A part of an archive is not taken, and replaced. What an upgrade of Postgres or a killed
	// start leaves goes with it.
	if err := os.Truncate(archive, 1<<20); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"initdb-0123456789abcdef.tar", "initdb-123.part"} {
		if err := os.WriteFile(filepath.Join(cache, left), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second := initialised(t, cache)
	if bytes.Equal(second, first) || !bytes.Equal(initialised(t, cache), second) {
		t.Error("the part was taken, or not replaced")
	}
	if only := onlyFile(t, cache); only != archive {
		t.Errorf("the cache holds %s, want %s", only, archive)
	}
}

func TestACacheThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(cache, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	initialised(t, cache)
}

func onlyFile(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q, %v, want one file", found, err)
	}
	return found[0]
}
