package lockstep_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// usageFlag matches a flag of `serve --help`. Its groups are the name and the default.
	usageFlag = regexp.MustCompile(`(?m)^ {2}-([a-z-]+) .*\n .*\(([^()]*)\)$`)
	// rowFlag matches a row of docs/flags.md. Its groups are the name, the service and the default.
	rowFlag = regexp.MustCompile("(?m)^\\| `-([a-z-]+)` \\| ([a-z]+) \\| ([^ ]+) \\|")
)

// TestFlagsAreDocumented compares docs/flags.md with the flags of the binaries.
func TestFlagsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{} // the default of each flag of each service
	bin, services := binaries(t)
	for _, m := range rowFlag.FindAllStringSubmatch(string(text), -1) {
		of := []string{m[2]}
		if m[2] == "both" {
			of = services
		}
		for _, service := range of {
			documented[service+" -"+m[1]] = m[3]
		}
	}
	for _, service := range services {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, service), "serve", "--help")
		cmd.Env = []string{} // with PUBSUB_EMULATOR_HOST the process is local, which is the default of a flag
		help, err := cmd.CombinedOutput()
		_, flags, found := strings.Cut(string(help), "\nflags of serve:\n")
		if err != nil || !found {
			t.Fatalf("%v: %s", err, help)
		}
		for _, m := range usageFlag.FindAllStringSubmatch(flags, -1) {
			name, want := service+" -"+m[1], cmp.Or(m[2], "none")
			if got, ok := documented[name]; !ok || got != want {
				t.Errorf("docs/flags.md has the default %q of %s, want %q", got, name, want)
			}
			delete(documented, name)
		}
	}
	for name := range documented {
		t.Errorf("docs/flags.md has %s, which is no flag", name)
	}
}
