package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"

	"example.com/lockstep/cmd/fork/guide"
	"example.com/lockstep/cmd/fork/repo"
)

// removal is the beginning of a title in the guide. The chapter with this title removes the second
// aggregate.
const removal = "Remove engagements"

// noEngagement reports whether answer is no. It returns an error if answer is neither yes nor no.
// It also returns an error if answer is no in one of two cases. Either the repository in dir has no
// second aggregate to leave out, or sed is not GNU sed. The sed of macOS reads the chapter's `sed
// -i` in another way.
func noEngagement(ctx context.Context, answer, dir string) (bool, error) {
	switch answer {
	case "yes":
		return false, nil
	case "no":
		if _, err := removalOf(dir); err != nil {
			return false, err
		}
		if err := exec.CommandContext(ctx, "sed", "--version").Run(); err != nil {
			return false, fmt.Errorf("no needs GNU sed in PATH: %w", err)
		}
		return true, nil
	default:
		return false, fmt.Errorf("%q, want yes or no", answer)
	}
}

// removalOf returns the chapter that removes the second aggregate, from the guide of the repository
// in dir.
func removalOf(dir string) (guide.Chapter, error) {
	chapters, err := guide.Read(dir)
	if err != nil {
		return guide.Chapter{}, err
	}
	return guide.Find(chapters, removal)
}

// removedText matches the texts by which the commands of the chapter select the lines and files to
// remove.
var removedText = regexp.MustCompile(`(?i)ngage|offset|counter`)

// checkRemoval returns an error if removedText matches the module path or a word. The chapter would
// remove every line with such a name.
func checkRemoval(module string, to words) error {
	named := []flagged{{flag: "--module", word: module}}
	for _, w := range append(named, to.all()...) {
		if found := removedText.FindString(w.word); found != "" {
			return fmt.Errorf("%s: with --engagement no, lines and files with %q are removed, which %q contains", w.flag, found, w.word)
		}
	}
	return nil
}

// compiles returns an error unless go vet accepts the repository's packages and tests. The commands
// of the chapter may have removed lines of other code.
func compiles(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, generateTimeout)
	defer cancel()
	vet := exec.CommandContext(ctx, "go", "-C", dir, "vet", "./...")
	vet.Env = repo.Environment()
	if out, err := vet.CombinedOutput(); err != nil {
		return fmt.Errorf("the removal left a repository that go vet refuses: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// withoutEngagements removes the second aggregate from the fork in dir. It makes the edits of the
// chapter in the fork's own change guide, and then removes the chapter. The migrations that made
// the tables stay. One more migration drops the tables, and its number is the same in the forks of
// all versions of this repository. So if a later version is merged into the fork, each migration
// still has the number under which databases have applied it.
func withoutEngagements(ctx context.Context, dir string) error {
	chapter, err := removalOf(dir)
	if err != nil {
		return err
	}
	// The chapter's `git rm` works on committed files only.
	if err := committed(ctx, dir); err != nil {
		return err
	}
	if err := chapter.Edit(ctx, dir); err != nil {
		return err
	}
	if err := removeChapter(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
		return err
	}
	if err := initialize(ctx, dir); err != nil {
		return err
	}
	return formatAll(ctx, dir)
}

// committed commits all files in dir, because some git commands work on committed files only.
func committed(ctx context.Context, dir string) error {
	if _, err := repo.Git(ctx, dir, "add", "--all"); err != nil {
		return err
	}
	_, err := repo.Git(ctx, dir, "-c", "user.name=fork", "-c", "user.email=fork@localhost", "-c", "commit.gpgsign=false",
		"-c", "core.hooksPath="+os.DevNull, "commit", "--quiet", "--message=with engagements")
	return err
}

// rowOf matches the row of the chapter in the guide's table of chapters.
var rowOf = regexp.MustCompile(`(?m)^\| \[` + removal + `\].*\n`)

// removeChapter removes the chapter from the guide in dir, after the edits of the chapter.
func removeChapter(dir string) error {
	name := filepath.Join(dir, filepath.FromSlash(guide.Document))
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	const heading = "\n## "
	before, chapter, _ := bytes.Cut(rowOf.ReplaceAll(text, nil), []byte(heading+removal))
	if _, after, found := bytes.Cut(chapter, []byte(heading)); found {
		before = slices.Concat(before, []byte(heading), after)
	}
	return os.WriteFile(name, before, 0o644)
}

// formatAll formats the Go files. gofmt may align the remaining lines in another way after a line
// was removed.
func formatAll(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, generateTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "gofmt", "-w", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("gofmt: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
