package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"example.com/lockstep/cmd/fork/guide"
	"example.com/lockstep/cmd/fork/repo"
	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/pgtest"
)

const (
	root   = "../.."
	module = "pair.test/acme/fork"
)

// theirs are the words of the fork that the tests make, and others those of its fork. They are
// unlikely as those of a repository that runs the tests.
var (
	theirs = words{aggregate: "quokka", plural: "quokkas", owner: "burrow", reader: "lookout", name: "outback"}
	others = words{aggregate: "walrus", plural: "walruses", owner: "icefloe", reader: "binocular", name: "arctic"}
)

// TestForkHasItsOwnWords reads the fork only: CI builds one, and runs its tests.
func TestForkHasItsOwnWords(t *testing.T) {
	t.Parallel()
	dir := forked(t)
	assertNoTrace(t, dir, current, theirs)
	for name, want := range map[string]string{
		"go.mod":                               "module " + module,
		"localpubsub/go.mod":                   "module " + module + "/localpubsub",
		"services/burrow/access.go":            "package burrow\n",
		"proto/burrow/v1/quokka_service.proto": "service QuokkaService {",
		"proto/quokka/events/v1/events.proto":  "message QuokkaCreated {",
		"migrations/burrow/00002_quokkas.sql":  "CREATE TABLE burrow.quokkas (",
		"deploy/terraform/burrow.tf":           "burrow-outbox",
		"internal/topics/topics.go":            `"quokka.events"`,
		"services/lookout/openapi.json":        `"/v1/quokkas"`,
		"cmd/fork/words.go":                    `owner:     "burrow"`,
		"README.md":                            "Outback\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s of the fork does not say %q: %v", name, want, err)
		}
	}
	for _, script := range []string{".ci/run", "deploy/terraform/check.sh"} {
		if info, err := os.Stat(filepath.Join(dir, script)); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%s of the fork: %v, want it executable: %v", script, info, err)
		}
	}
	for _, hidden := range []string{".github/workflows/ci.yml", ".dockerignore", ".golangci.yml", ".gitignore"} {
		if _, err := os.Stat(filepath.Join(dir, hidden)); err != nil {
			t.Errorf("the fork lacks a file that it needs: %v", err)
		}
	}
}

func TestForkIsLean(t *testing.T) {
	t.Parallel()
	dir := forked(t)
	for name := range leftOut {
		if name == "proto/released.yaml" || strings.HasPrefix(name, "deploy/schemas/released") {
			continue // are generated from the fork's own
		}
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the fork has %s: %v", name, err)
		}
	}
	for _, name := range []string{"Makefile", ".ci/run", ".ci/full", ".ci/race", "README.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || bytes.Contains(text, []byte("fork: leave out")) || bytes.Contains(text, []byte("test-lab")) {
			t.Errorf("%s of the fork has a piece that it does without: %v", name, err)
		}
	}
}

// TestForkKeepsTheLicense: Apache-2.0 lets a copy change everything but the names of the
// authors.
func TestForkKeepsTheLicense(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	dir := forked(t)
	got, err := os.ReadFile(filepath.Join(dir, "LICENSE"))
	if err != nil || !bytes.Equal(got, want) || !bytes.Contains(got, []byte("the Lockstep authors")) {
		t.Errorf("LICENSE of the fork: %v\n%s", err, got)
	}
	for name, want := range map[string]string{"README.md": "the Lockstep authors", "Dockerfile": "Apache-2.0", "CONTRIBUTING.md": "Apache-2.0"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s of the fork does not name %s: %v", name, want, err)
		}
	}
}

// TestForkOfAFork takes half of the time of all tests here. .ci/full runs it.
func TestForkOfAFork(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("set LOCKSTEP_FULL to make a fork of a fork")
	}
	first, second := forked(t), t.TempDir()
	if _, err := fork(t.Context(), first, second, "other.test/pair", theirs, others); err != nil {
		t.Fatal(err)
	}
	assertNoTrace(t, second, theirs, others)
	if got, err := repo.Module(second); err != nil || got != "other.test/pair" {
		t.Errorf("module of the second fork = %q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(second, "LICENSE")); err != nil || !bytes.Contains(got, []byte("the Lockstep authors")) {
		t.Errorf("LICENSE of the second fork: %v\n%s", err, got)
	}
}

// TestForkKeepsTheWords: without words, nothing but the module's path is another.
func TestForkKeepsTheWords(t *testing.T) {
	t.Parallel()
	needsGit(t)
	dir := t.TempDir()
	files, err := fork(t.Context(), root, dir, module, current, current)
	if err != nil {
		t.Fatal(err)
	}
	old, err := repo.Module(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if bytes.Contains(f.content, []byte(old)) {
			t.Errorf("%s has the old path", f.name)
		}
	}
	before, err := os.ReadFile(filepath.Join(root, "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(filepath.Join(dir, "docs", "runbook.md"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("docs/runbook.md has changed: %v", err)
	}
}

func TestUsageErrorsComeBeforeAnyWork(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		nil, {"--module", "pair"}, {"--modul", module}, {"--module", module, t.TempDir()},
		{"--module", module, "--aggregate", "type"}, {"--module", module, "--name", "Product"},
		{"--module", module, "--engagement", "maybe"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); !errors.As(err, new(command.UsageError)) {
			t.Errorf("run(%q): %v, want wrong usage", args, err)
		}
	}
}

// TestForkWithoutTheSecondAggregate: nothing of it is left but the migrations that have made and
// drop its tables, examples of the library, and what makes forks. A repository that has none already
// refuses the wish.
func TestForkWithoutTheSecondAggregate(t *testing.T) {
	t.Parallel()
	needsGit(t)
	if _, err := noEngagement(t.Context(), "no", root); err != nil {
		if !strings.Contains(err.Error(), removal) {
			t.Errorf("refused: %v", err)
		}
		return
	}
	dir := t.TempDir()
	if _, err := fork(t.Context(), root, dir, module, current, theirs); err != nil {
		t.Fatal(err)
	}
	if err := withoutEngagements(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := noEngagement(t.Context(), "no", dir); err == nil {
		t.Error("the chapter that was followed is still there")
	}
	if _, err := repo.Git(t.Context(), dir, "rev-parse", "HEAD"); err == nil {
		t.Error("the fork begins with a commit")
	}
	files, err := readAll(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	// boundaries_test.go and line_test.go have the name in paths of examples. `make generate` writes the others.
	others := regexp.MustCompile(`^(migrations/.*\.sql|pkg/.*|cmd/fork/.*|Makefile|boundaries_test\.go|internal/serve/line_test\.go` +
		`|deploy/terraform/(topics|alerts|boards)\.json|deploy/schemas/.*\.proto|deploy/observability/(rules|grafana/boards).*` +
		`|docs/(grpc|events|observability|tables)\.md)$`)
	for _, f := range files {
		if at := regexp.MustCompile(`(?i)engagement|offset (show|reset)`).FindIndex(f.content); at != nil && !others.MatchString(f.name) {
			t.Errorf("%s has %q", f.name, f.content[max(0, at[0]-40):min(len(f.content), at[1]+40)])
		}
		// The TypeScript client is generated. What is left of a member that was removed is no part of it.
		if at := regexp.MustCompile(`\*/\s*(/\*|\})`).FindIndex(f.content); at != nil && strings.HasPrefix(f.name, "clients/") {
			t.Errorf("%s has a comment without a member before %q", f.name, f.content[at[0]:min(len(f.content), at[1]+40)])
		}
	}
}

// TestAForkTouchesNoOtherRepository: git names the repository of a hook, or of a linked worktree, in
// the environment.
func TestAForkTouchesNoOtherRepository(t *testing.T) {
	needsGit(t)
	other, dir := t.TempDir(), t.TempDir()
	if err := initialize(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_DIR", filepath.Join(other, ".git"))
	if err := initialize(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := committed(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	step := guide.Step{Text: "git rm -q -- text\n"}
	if err := (guide.Chapter{Steps: []guide.Step{step}}).Edit(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := repo.Git(t.Context(), dir, "rev-parse", "HEAD"); err != nil {
		t.Error(err)
	}
	if commit, err := repo.Git(t.Context(), other, "rev-parse", "--verify", "HEAD"); err == nil {
		t.Errorf("another repository has the commit %s", commit)
	}
}

// TestAForkRunsNoHook: a user may have hooks for all repositories. Not all of them know --no-verify.
func TestAForkRunsNoHook(t *testing.T) {
	needsGit(t)
	hooks, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(hooks, "prepare-commit-msg"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(hooks, "config")
	if err := os.WriteFile(config, []byte("[core]\nhooksPath = \""+hooks+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	if err := initialize(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := committed(t.Context(), dir); err != nil {
		t.Error(err)
	}
}

// TestEditsDoNotDependOnTheLocale: in Turkish, a range of letters such as [A-Z] lacks some.
func TestEditsDoNotDependOnTheLocale(t *testing.T) {
	t.Setenv("LC_ALL", "tr_TR.UTF-8")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("locale\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	step := guide.Step{Text: "sed -i \"s/locale/$LC_ALL/\" text\n"}
	if err := (guide.Chapter{Steps: []guide.Step{step}}).Edit(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "text")); err != nil || string(text) != "C\n" {
		t.Errorf("sed runs in the locale %q, %v", text, err)
	}
}

// TestARemovalThatCutsTooMuchIsAnError: go vet looks at the fork before it is called complete.
func TestARemovalThatCutsTooMuchIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.org/cut\n", "cut.go": "package cut\n\nvar _ = fmt.Sprint()\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := compiles(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "undefined: fmt") {
		t.Errorf("%v, want the name that is undefined", err)
	}
}

// TestTheSwitchNeedsGNUSed: another one would fail in the middle.
func TestTheSwitchNeedsGNUSed(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sed"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := removalOf(root); err != nil {
		t.Skip(err)
	}
	t.Setenv("PATH", bin)
	if _, err := noEngagement(t.Context(), "no", root); err == nil || !strings.Contains(err.Error(), "GNU sed") {
		t.Errorf("another sed: %v, want a refusal", err)
	}
}

// forks is the directory of the fork that all tests read.
var forks string

func TestMain(m *testing.M) {
	var err error
	if forks, err = os.MkdirTemp("", "fork-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(forks)
	pgtest.MainWith(m, func(context.Context, string) error { return nil })
}

// made makes that fork.
var made = sync.OnceValue(func() error {
	_, err := fork(context.Background(), root, forks, module, current, theirs)
	return err
})

// forked returns a fork to read.
func forked(t *testing.T) (dir string) {
	t.Helper()
	needsGit(t)
	if err := made(); err != nil {
		t.Fatal(err)
	}
	return forks
}

func needsGit(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not a git clone, and fork copies the files that git lists")
	}
}

// assertNoTrace searches a fork for the words from. Exempt are the names of the authors, and
// Postgres's own pg_catalog. In this repository no other word contains one of them.
func assertNoTrace(t *testing.T, dir string, from, to words) {
	t.Helper()
	pattern := newRenamer(from, to, nil).pattern
	if from.ambiguous() {
		pattern = regexp.MustCompile(`(?i)` + from.aggregate + `|` + from.reader + `|` + from.name)
	}
	exempt := regexp.MustCompile(`pg_catalog|the Lockstep authors`)
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() == "LICENSE" {
			return err
		}
		if entry.Name() == ".git" {
			return filepath.SkipDir
		}
		relative, _ := filepath.Rel(dir, name)
		assertNoWord(t, relative, relative, pattern, from)
		if entry.IsDir() {
			return nil
		}
		content, err := os.ReadFile(name)
		if !isBinary(content) {
			assertNoWord(t, relative, exempt.ReplaceAllString(string(content), ""), pattern, from)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func assertNoWord(t *testing.T, name, text string, pattern *regexp.Regexp, from words) {
	t.Helper()
	for _, found := range pattern.FindAllStringIndex(text, -1) {
		if from.ambiguous() || standsAlone(text, found[0], found[1]) {
			t.Errorf("%s still has %q: %q", name, text[found[0]:found[1]], text[max(0, found[0]-40):min(len(text), found[1]+40)])
			return
		}
	}
}
