package services_test

import (
	"debug/buildinfo"
	"os/exec"
	"path/filepath"
	"testing"

	"example.com/lockstep/internal/command"
)

// TestBinariesSayTheirVersion asks the binaries themselves, as they are built outside
// of an image.
func TestBinariesSayTheirVersion(t *testing.T) {
	t.Parallel()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"video", "catalog"} {
		file := filepath.Join(binaries, name)
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		commit := "unknown" // an export of the repository has no history
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				commit += "-modified"
			}
		}
		out, err := exec.CommandContext(t.Context(), file, "version").CombinedOutput()
		if want := name + " " + command.Version + " (commit " + commit + ")\n"; err != nil || string(out) != want {
			t.Errorf("%s version: %v, %q, want %q", name, err, out, want)
		}
	}
}
