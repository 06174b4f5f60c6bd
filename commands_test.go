package lockstep_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// runs names the file that runs a command, and the text in it that does.
type runs struct{ file, text string }

// commands are those of CONTRIBUTING.md, SECURITY.md and CHANGELOG.md. A command that
// nothing runs is wrong one day, and its reader finds out first.
var commands = map[string]runs{
	"make help":             {"commands_test.go", `"make", "help"`},
	"make ci":               {".github/workflows/ci.yml", "run: make ci\n"},
	"make lint":             {".ci/run", "\nmake lint\n"},
	"make verify":           {".ci/run", "\nmake verify\n"},
	"make test":             {".ci/run", "\ntests make test ARGS="},
	"make test ARGS=-short": {".ci/run", " test ARGS='-short "},
	"make test-localpubsub": {".ci/full", "make test-localpubsub\n"},
	"make fork":             {".ci/run", "\nmake fork MODULE="},
	// fork: leave out
	"make test-lab":        {".ci/full", "make test-lab\n"},
	"go -C lab test ./...": {"Makefile", "\tgo -C lab test "},
	// fork: go on
	"make clients":         {"Makefile", `echo "run make clients"`},
	"make clients-check":   {".ci/run", "\n  make clients-check\n"},
	"make tf-check":        {".github/workflows/ci.yml", "run: make tf-check\n"},
	"make compose-check":   {".github/workflows/ci.yml", "run: make compose-check\n"},
	"make token":           {"services/readme_test.go", "make -s --no-print-directory -C %s token"},
	"make generate":        {"cmd/fork/main.go", `"make", "-C", dir, "generate"`},
	"video version":        {"services/version_test.go", `file, "version"`},
	"catalog version":      {"services/version_test.go", `file, "version"`},
	"video migrate":        {"services/video/cmd/video/main_test.go", `[]string{"migrate"}, getenv`},
	"catalog migrate":      {"docker-compose.yml", "\n  migrate-catalog:\n"}, // make compose-check
	"video outbox":         {"services/runbook_test.go", "TestRunbook"},
	"catalog dlq":          {"services/runbook_test.go", "TestRunbook"},
	"catalog reconcile":    {"services/runbook_test.go", "TestRunbook"},
	"catalog backfill":     {"services/runbook_test.go", "TestRunbook"},
	"catalog rebuild":      {"services/rebuild_test.go", `types(t, "rebuild"`},
	"catalog serve":        {"services/process_test.go", `command), "serve"`},
	"video events show":    {"services/runbook_test.go", `o.types(t, "where"`},
	"catalog events show":  {"services/runbook_test.go", `o.types(t, "where"`},
	"video erase":          {"services/erasure_test.go", `o.types(t, "erase"`},
	"catalog erase":        {"services/erasure_test.go", `o.types(t, "erase"`},
	"video epoch bump":     {"services/restore_test.go", `o.types(t, "epoch"`},
	"video epoch show":     {"services/restore_test.go", `o.types(t, "epoch"`},
	"catalog offset show":  {"services/offsets_test.go", `types(t, "replay"`},
	"catalog offset reset": {"services/offsets_test.go", `types(t, "replay"`},
}

// needs are the commands of nested modules: without the module there is no command.
var needs = map[string]string{
	"make test-localpubsub": "localpubsub",
	// fork: leave out
	"make test-lab":        "lab",
	"go -C lab test ./...": "lab",
	// fork: go on
}

var (
	shell  = regexp.MustCompile("(?s)```sh\n(.*?)```")
	inText = regexp.MustCompile("`((?:make|video|catalog|go|git|docker|terraform|gcloud|psql|curl) [^`]+)`")
)

// TestCommandsAreRun compares the commands of three documents with those that CI or a
// test runs.
func TestCommandsAreRun(t *testing.T) {
	t.Parallel()
	unnamed := map[string]bool{}
	for command, by := range commands {
		if missing(needs[command]) {
			continue
		}
		unnamed[command] = true
		text, err := os.ReadFile(by.file)
		if err != nil || !strings.Contains(string(text), by.text) {
			t.Errorf("%s does not run %s by %q: %v", by.file, command, by.text, err)
		}
	}
	for _, name := range []string{"CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commandsIn(string(text)) {
			delete(unnamed, command)
			if _, known := commands[command]; !known || missing(needs[command]) {
				t.Errorf("%s names %q, which neither CI nor a test is known to run", name, command)
			}
		}
	}
	for command := range unnamed {
		t.Errorf("no document names %q: take it off the list", command)
	}
}

// commandsIn returns the lines of the text's shell blocks without their comments, and
// the commands in its sentences.
func commandsIn(text string) (found []string) {
	for _, block := range shell.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(line, "#")
			if command = strings.TrimSpace(command); command != "" {
				found = append(found, command)
			}
		}
	}
	for _, m := range inText.FindAllStringSubmatch(shell.ReplaceAllString(text, ""), -1) {
		found = append(found, m[1])
	}
	return found
}

func TestCommandsIn(t *testing.T) {
	t.Parallel()
	text := "Run `make lint`, not `makefile`.\n```sh\nmake test ARGS=-short  # the quick ones\n# none\n```\n`video version`"
	if got := strings.Join(commandsIn(text), "|"); got != "make test ARGS=-short|make lint|video version" {
		t.Errorf("found %s", got)
	}
}

// TestMakeHelpListsTheTargets runs the one command that CONTRIBUTING.md has for all the
// others.
func TestMakeHelpListsTheTargets(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("not installed: make")
	}
	out, err := exec.CommandContext(t.Context(), "make", "help").CombinedOutput()
	if err != nil {
		t.Fatalf("make help: %v\n%s", err, out)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		if !strings.Contains(string(out), "make "+m[1]+" ") {
			t.Errorf("make help does not list %s:\n%s", m[1], out)
		}
	}
}
