package lockstep_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// newer are the features that macOS does not have: its bash is 3.2, its make 3.81, and its sed, grep,
// date and so on are those of BSD.
var newer = []*regexp.Regexp{
	regexp.MustCompile(`\b(mapfile|readarray|coproc)\b|\b(declare|local) -[a-z]*[An]|\$\{\w+(\^|,)|&>>|\|&|\[\[ -v `), // bash
	regexp.MustCompile(`\bread -[a-z]*p`), // zsh takes it for something else
	regexp.MustCompile(`\bsed (-[a-zA-Z]+ )*-[a-zA-Z]*i|\bsed .*\\[tsSwWb+?|]|\bgrep -[a-zA-Z]*[Pz]|\bdate (-d|--)|\breadlink -[a-z]*f|\bstat -[a-z]*c`),
	regexp.MustCompile(`\bsort -[a-zA-Z]*V|\bmktemp .*(-p|--)|\bfind .*-printf|\bcp (--|-[a-zA-Z]*t)|\bdf --|\bhead -[a-z]* ?-`),
	regexp.MustCompile(`(^|[\s(|;&])timeout \d|\b(nproc\b|sha256sum|setsid\b|flock\b|realpath\b|shuf\b|tac\b)`),
	regexp.MustCompile(`^\.ONESHELL|^\w+ *(!|::)=|^define \w+ *:?=|\$\(file |&:|\.SHELLSTATUS|--output-sync`), // make
	// make 3.81 looks up the program of a line without a shell in the PATH that it was started with.
	regexp.MustCompile(`^\t[@-]*(buf|golangci-lint|protoc-gen-\w+)\b`),
}

// elsewhere are files that say themselves that they need Linux, or GNU sed.
var elsewhere = map[string]bool{"deploy/compose/standins.sh": true, "docs/adapt.md": true}

// TestScriptsRunOnMacOS looks for features that bash, make and the tools of macOS do not have.
func TestScriptsRunOnMacOS(t *testing.T) {
	t.Parallel()
	found := 0
	for name, text := range scripts(t) {
		found++
		if elsewhere[name] {
			continue
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			for _, feature := range newer {
				if use := feature.FindString(line); use != "" {
					t.Errorf("%s: %q in the line %s", name, use, strings.TrimSpace(line))
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d scripts were found", found)
	}
}

// scripts returns the scripts of the repository, its makefiles, the workflow whose steps tests run, and
// the commands of the documents.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "build"):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		base := filepath.Base(name)
		makefile := base == "Makefile" || strings.HasSuffix(base, ".mk") || name == filepath.Join(".github", "workflows", "ci.yml")
		document := filepath.Ext(base) == ".md"
		if !makefile && !document && filepath.Ext(base) != ".sh" && !strings.HasPrefix(name, ".ci"+string(filepath.Separator)) {
			return nil
		}
		text, err := os.ReadFile(name)
		if document {
			text = bytes.Join(shell.FindAll(text, -1), nil)
		}
		found[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestNewerFeaturesAreFound has lines that were in scripts here, and failed or did nothing on macOS.
func TestNewerFeaturesAreFound(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"\tgolangci-lint run ./...\n":                           true,
		"\t@names=$$(sed -n 's/^-\\t-\\t//p')\n":                true,
		"  mapfile -t failed < <(sort)\n":                       true,
		"given=GIVEN_${service^^}\n":                            true,
		"git ls-files -z | grep -zvE 'x' | tar\n":               true,
		"TMPDIR=$(mktemp -d -p /dev/shm)\n":                     true,
		"read -rsp 'password: ' PGPASSWORD\n":                   true,
		"sed -i '/x/d' y\n":                                     true,
		"\t@cd proto && buf lint\n":                             false,
		"ID=$(sed -E 's/.*\"video_id\":\"([^\"]+)\".*/\\1/')\n": false,
		"given=${GIVEN:-x} image=${image%:*}\n":                 false,
	} {
		found := false
		for _, feature := range newer {
			found = found || feature.MatchString(line)
		}
		if found != want {
			t.Errorf("%q: found %v, want %v", line, found, want)
		}
	}
}

// building is a line of a makefile that builds a program. Go asks git for the commit, and gives up if
// git refuses the repository because another user owns it, as in a container that mounts it.
var building = regexp.MustCompile(`\bgo (-C \S+ )?build (.*)`)

func TestMakeBuildsWithoutGit(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, build := range building.FindAllStringSubmatch(string(makefile), -1) {
		if !strings.HasPrefix(build[2], "-buildvcs=false ") {
			t.Errorf("%s: without -buildvcs=false", build[0])
		}
	}
}

// TestMakeInAFolderWithASpace: make takes a space for the end of a file's name.
func TestMakeInAFolderWithASpace(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("not installed: make")
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "my own folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), makefile, 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "make", "-n", "run", "lint", "generate", "tf-provider")
	run.Dir, run.Env = dir, ofAShell()
	out, err := run.CombinedOutput()
	for _, want := range []string{`GOBIN="` + dir + `/build/bin" go install github.com/bufbuild/buf/`, `"` + dir + `/build/bin/golangci-lint" run`, "touch build/bin/.buf@", "touch build/terraform/."} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("make -n has no %q: %v\n%s", want, err, out)
		}
	}
}

// TestMakeBelowAWorkspace: Go refuses a module in a folder below a go.work that does not name it, such as
// that of a repository with many modules.
func TestMakeBelowAWorkspace(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("not installed: make")
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pair := filepath.Join(dir, "pair")
	if err := os.Mkdir(pair, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.work": "go 1.26\n", "pair/go.mod": "module example.org/pair\n\ngo 1.26\n", "pair/pair.go": "package pair\n", "pair/Makefile": string(makefile),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.CommandContext(t.Context(), "make", "test", "PKG=.")
	run.Dir = pair
	run.Env = slices.DeleteFunc(ofAShell(), func(variable string) bool { return strings.HasPrefix(variable, "GOWORK=") })
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// ofAShell returns the environment without the variables that make exports to a test that it runs.
func ofAShell() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "MAKE") || strings.HasPrefix(variable, "MFLAGS=") || strings.HasPrefix(variable, "LOCKSTEP_TF_PLUGINS=")
	})
}

// TestVariablesOfAShellAreNotThoseOfMake: a shell may have a BIN or a PARENT for other programs. With its
// BIN, make would put tools there, and the command aggregate would not find them.
func TestVariablesOfAShellAreNotThoseOfMake(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("not installed: make")
	}
	run := exec.CommandContext(t.Context(), "make", "-n", "aggregate", "fork", "lint", "AGGREGATE=given")
	run.Env = ofAShell()
	for _, name := range []string{"BIN", "MODULE", "DIR", "FIELDS", "PARENT", "AGGREGATE", "NAME"} {
		run.Env = append(run.Env, name+"=of-the-shell")
	}
	if out, err := run.CombinedOutput(); err != nil || strings.Contains(string(out), "of-the-shell") || !strings.Contains(string(out), "given") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestACommandOfMakeLacksVariablesOfAShell: with a CDPATH, cd looks for a folder there first. With a GOOS of another
// machine, neither the tools nor `make run` run here. With Terraform's variables, tf-check would check another
// deployment, or change its files.
func TestACommandOfMakeLacksVariablesOfAShell(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("not installed: make")
	}
	list := exec.CommandContext(t.Context(), "make", "-f", "Makefile", "-f", "-", "list")
	list.Env, list.Stdin = ofAShell(), strings.NewReader("list:\n\t@env\n")
	for _, name := range []string{"CDPATH", "GOOS", "GOARCH", "TF_DATA_DIR", "TF_CLI_ARGS", "TF_CLI_ARGS_test", "TF_VAR_region"} {
		list.Env = append(list.Env, name+"=of-the-shell")
	}
	if out, err := list.CombinedOutput(); err != nil || strings.Contains(string(out), "of-the-shell") {
		t.Errorf("%v, a command has\n%s", err, out)
	}
}

// TestMakeKeepsTheOrderOfItsTargets: with a -j of the shell, `make generate verify` would compare files that are half
// generated, and `make fmt lint` would lint what fmt has yet to write.
func TestMakeKeepsTheOrderOfItsTargets(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("not installed: make")
	}
	args, want := []string{"-f", "Makefile", "-f", "-"}, ""
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		args, want = append(args, name+".ordered"), want+"begin "+name+"\nend "+name+"\n"
	}
	run := exec.CommandContext(t.Context(), "make", args...)
	run.Env, run.Stdin = append(ofAShell(), "MAKEFLAGS=-j8"), strings.NewReader("%.ordered:\n\t@echo begin $*; echo end $*\n")
	if out, err := run.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%v, not in their order:\n%s", err, out)
	}
}

// TestFilesKeepTheirLineEndings: Git for Windows makes CRLF of LF, with which no script runs, unless a
// file says that it must not.
func TestFilesKeepTheirLineEndings(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("not installed: git")
	}
	from, to := source{t, t.TempDir()}, filepath.Join(t.TempDir(), "clone")
	for _, name := range []string{".gitattributes", "Makefile"} {
		from.write(name, readFile(t, name))
	}
	from.git("init", "--quiet")
	from.commit()
	from.git("clone", "--quiet", "--config", "core.autocrlf=true", from.dir, to)
	text, err := os.ReadFile(filepath.Join(to, "Makefile"))
	if err != nil || strings.Contains(string(text), "\r") {
		t.Errorf("a clone that makes CRLF has CRLF in the Makefile, or an error: %v", err)
	}
}

// pasted are the documents whose commands a newcomer pastes into a terminal.
var pasted = []string{"README.md", "cmd/fork/parts/README-head.md", "localpubsub/README.md"}

var (
	commentOnly = regexp.MustCompile(`(?m)^ *# .*$`)
	trailing    = regexp.MustCompile(`(?m)^[^#\n]*[^#\s].*\s# .*$`)
)

// TestCommandsCanBePasted: zsh, the shell of macOS, has no comments in a terminal unless it is told to.
// It takes the words behind a command for arguments, and runs what a comment has between backquotes.
func TestCommandsCanBePasted(t *testing.T) {
	t.Parallel()
	for _, name := range pasted {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) { // a fork has no parts of a fork
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shell.FindAllStringSubmatch(string(text), -1) {
			for _, line := range trailing.FindAllString(block[1], -1) {
				t.Errorf("%s: the comment is for a line of its own: %s", name, line)
			}
			for _, line := range commentOnly.FindAllString(block[1], -1) {
				if strings.ContainsAny(line[2:], "`'\"$;&|<>()*?[]{}!~=\\") {
					t.Errorf("%s: zsh does more with this comment than to find no command #: %s", name, line)
				}
			}
		}
	}
}
