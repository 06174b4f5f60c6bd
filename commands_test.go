package lockstep_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	"make vulnerabilities":  {".github/workflows/ci.yml", "run: make vulnerabilities\n"},
	"make verify":           {".ci/run", "\nmake verify\n"},
	"make test":             {".ci/run", "\ntests make test ARGS="},
	"make test ARGS=-short": {".ci/run", ` test ARGS="-short `},
	"make test-postgres":    {".ci/full", "make test-postgres\n"},
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
	"make token":           {"services/readme_test.go", "make -s --no-print-directory -C '%s' token"},
	"make aggregate":       {"cmd/aggregate/plan_test.go", `"make", "aggregate", "NAME="`}, // .ci/full
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

// inJobs finds the arguments of a command that runs in a job, in quotes or not, and before them the
// job, if the line names one.
var inJobs = regexp.MustCompile(`(?:jobs execute (([a-z]+)-[a-z]+) [^\n]*?)?--args=('[^'\n]*'|"[^"\n]*"|[^\s\x60)]+)`)

// TestCommandsInJobsAreParsed runs each command that a document gives to a job of Cloud Run. There is
// no environment, so each must end at its missing variables, and none before them: at the command
// line itself, with the exit code 2.
func TestCommandsInJobsAreParsed(t *testing.T) {
	t.Parallel()
	bin, services := binaries(t)
	for _, name := range []string{"deploy/terraform/README.md", "deploy/RELEASE.md", "docs/runbook.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range commandsInJobs(string(text)) {
			runBy := services
			if found.job != "" {
				runBy = []string{found.service}
				if !hasJob(t, found.job) {
					t.Errorf("%s: Terraform makes no job %s", name, found.job)
				}
			}
			var last string
			if !slices.ContainsFunc(runBy, func(service string) bool {
				cmd := exec.CommandContext(t.Context(), filepath.Join(bin, service), found.args...)
				cmd.Env = []string{"CLOUD_RUN_EXECUTION=" + found.job + "-x7k2p"}
				out, err := cmd.CombinedOutput()
				last = fmt.Sprintf("%v: %s", err, out)
				return cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 1 && strings.Contains(string(out), "DATABASE_URL")
			}) {
				t.Errorf("%s: %s %q does not come as far as its environment: %s", name, found.job, found.args, last)
			}
		}
	}
}

// binaries builds the services, and returns the folder of the binaries and their names.
func binaries(t *testing.T) (bin string, services []string) {
	t.Helper()
	mains, err := filepath.Glob("services/*/cmd/*/main.go")
	if err != nil || len(mains) < 2 {
		t.Fatal(mains, err)
	}
	bin = t.TempDir()
	for _, name := range mains {
		services = append(services, filepath.Base(filepath.Dir(name)))
		build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin, "./"+filepath.Dir(name))
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return bin, services
}

// A commandInJob is a command that a document gives to a job. job and service are empty if the
// document does not name the job.
type commandInJob struct {
	job, service string
	args         []string
}

func commandsInJobs(text string) (found []commandInJob) {
	for _, m := range inJobs.FindAllStringSubmatch(text, -1) {
		found = append(found, commandInJob{m[1], m[2], words(strings.Trim(m[3], `'"`))})
	}
	return found
}

// words splits a list as gcloud does: at commas, or at the text between two ^ at its beginning.
func words(list string) []string {
	if rest, ok := strings.CutPrefix(list, "^"); ok {
		if separator, rest, ok := strings.Cut(rest, "^"); ok {
			return strings.Split(rest, separator)
		}
	}
	return strings.Split(list, ",")
}

// hasJob reports whether the Terraform module makes a job of this name. A service's call of modules/service
// names its jobs, and each call makes a further one, for the migrations.
func hasJob(t *testing.T, name string) bool {
	t.Helper()
	files, err := filepath.Glob("deploy/terraform/*.tf")
	if err != nil {
		t.Fatal(err)
	}
	made := regexp.MustCompile(`(?m)^ +` + name + ` = \{$`)
	if service, migrates := strings.CutSuffix(name, "-migrate"); migrates {
		made = regexp.MustCompile(`(?m)^module "` + service + `" \{$`)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return made.Match(text)
	})
}

func TestCommandsInJobs(t *testing.T) {
	t.Parallel()
	text := "run jobs execute a-b --region=\"$R\" --args=x,y,--by=me@example.com --wait\na job (`--args=x,z`)\n" +
		"gcloud run jobs execute c-d --args='run,--free,40 GB' --wait\n" +
		"gcloud run jobs execute e-f --args='^;^run;--why=a, b;--yes' --wait\n"
	want := "[{a-b a [x y --by=me@example.com]} {  [x z]} {c-d c [run --free 40 GB]} {e-f e [run --why=a, b --yes]}]"
	if got := fmt.Sprint(commandsInJobs(text)); got != want {
		t.Errorf("found %s, want %s", got, want)
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

var (
	// ofARegion finds a command of gcloud that acts on something in a region, up to the end of its line.
	ofARegion = regexp.MustCompile(`gcloud (?:beta )?(?:run|scheduler) [a-z-]+ .*`)
	// quoted finds a command in a sentence, which may go on in the next line.
	quoted = regexp.MustCompile("`(gcloud [^`]*)`")
)

// TestGcloudCommandsAreComplete: without its region gcloud prompts for one, or takes another
// project's default. A command prints lines that are JSON, too, which are in jsonPayload.
func TestGcloudCommandsAreComplete(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("d*/*.md")
	if err != nil || len(documents) < 5 {
		t.Fatal(documents, err)
	}
	files, err := filepath.Glob("deploy/terraform/*.tf")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, name := range slices.Concat(documents, files, []string{"README.md", "SECURITY.md", "deploy/terraform/README.md"}) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range incomplete(string(text)) {
			t.Errorf("%s: %s", name, line)
		}
	}
}

func incomplete(text string) (found []string) {
	var commands []string
	rest := quoted.ReplaceAllStringFunc(text, func(command string) string {
		commands = append(commands, strings.ReplaceAll(strings.Trim(command, "`"), "\n", " "))
		return ""
	})
	commands = append(commands, strings.Split(strings.ReplaceAll(rest, "\\\n", ""), "\n")...)
	for _, line := range commands {
		if command := ofARegion.FindString(line); command != "" && !strings.Contains(command, "--region=") && !strings.Contains(command, "--location=") {
			found = append(found, command+" names no region")
		}
	}
	if strings.Contains(text, "value(textPayload)") {
		found = append(found, "value(textPayload) leaves out the lines that are JSON")
	}
	return found
}

func TestIncompleteCommands(t *testing.T) {
	t.Parallel()
	text := "`gcloud run services describe a`, `gcloud run jobs\nexecutions list --region=b` and `gcloud beta run`\n" +
		"gcloud scheduler jobs pause c --location=d\ngcloud scheduler jobs pause e\n\ngcloud logging read --format='value(textPayload)'\n"
	want := "gcloud run services describe a names no region|gcloud scheduler jobs pause e names no region|value(textPayload) leaves out the lines that are JSON"
	if got := strings.Join(incomplete(text), "|"); got != want {
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
