package lockstep_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNightlyRunsEachPart compares the parts of .ci/full with the jobs of its workflow: a part without
// a job would never run, and a job without a part would fail each night.
func TestNightlyRunsEachPart(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), ".ci/full", "nonsense").CombinedOutput()
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Fatalf(".ci/full nonsense: %v, want exit code 2\n%s", err, output)
	}
	_, list, _ := strings.Cut(string(output), "the parts are: ")
	parts := strings.Fields(list)
	workflow, err := os.ReadFile(".github/workflows/full.yml")
	if err != nil {
		t.Fatal(err)
	}
	var jobs []string
	for _, job := range regexp.MustCompile(`(?m)^ {10}- (\w+)$`).FindAllStringSubmatch(string(workflow), -1) {
		jobs = append(jobs, job[1])
	}
	if len(parts) < 6 || !slices.Equal(parts, jobs) {
		t.Errorf(".ci/full has the parts %v, and full.yml the jobs %v", parts, jobs)
	}
}

// TestNightlyGoesOnAfterAFailure runs two parts with a make that fails in the first one. That part ends
// there, the second runs, and the exit code is 1.
func TestNightlyGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	dir, bin := t.TempDir(), t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, ".ci"), os.DirFS(".ci")); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"make":    "case \"$*\" in *TestReplay*) exit 1 ;; *) echo \"made $*\" ;; esac",
		"go":      "echo \"went $*\"",
		"apt-get": "exit 1", // nothing is installed by a test
		"sudo":    "exit 1", // it would run the machine's own apt-get
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	nightly := exec.CommandContext(t.Context(), filepath.Join(dir, ".ci", "full"), "postgres", "histories")
	nightly.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "TMPDIR="+dir)
	output, err := nightly.CombinedOutput()
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(output), "==> failed: postgres (") {
		t.Errorf("a part that fails: %v, want exit code 1 and its name\n%s", err, output)
	}
	for text, want := range map[string]bool{"made test-postgres": false, "made crash\n": true, "made fresh\n": true, "TestANewField": true} {
		if strings.Contains(string(output), text) != want {
			t.Errorf("%q in the output: %v, want %v\n%s", text, !want, want, output)
		}
	}
}

// The night's tests run on each major version of Postgres that the repository deploys or starts. The planner differs
// from version to version, also where the oldest and the newest agree.
func TestNightlyHasEachPostgresThatIsUsed(t *testing.T) {
	t.Parallel()
	find := func(file, pattern string) []string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		return strings.Fields(string(found[1]))
	}
	tested := find("Makefile", `(?m)^POSTGRES \?= (.*)$`)
	for file, pattern := range map[string]string{
		"deploy/terraform/database.tf":        `database_version\s*= "POSTGRES_(\d+)"`,
		"docker-compose.yml":                  `image: postgres:(\d+)`,
		"internal/local/postgres/download.go": `downloaded\s*= embeddedpostgres.V(\d+)`,
	} {
		used := find(file, pattern)[0]
		if !slices.ContainsFunc(tested, func(version string) bool { return strings.HasPrefix(version, used+".") }) {
			t.Errorf("%s has Postgres %s, and the tests run on %v", file, used, tested)
		}
	}
}
