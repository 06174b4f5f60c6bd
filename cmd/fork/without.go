package main

import (
	"bytes"
	"context"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"

	"example.com/lockstep/cmd/fork/guide"
)

// removal begins the title of the guide's chapter that takes the second aggregate out.
const removal = "Remove engagements"

// noEngagement reports whether the answer is no. It refuses an answer that is neither yes nor
// no. It refuses no if the repository in dir has no second aggregate to leave out, or if sed is
// not GNU sed. The sed of macOS takes the chapter's `sed -i` for something else.
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

// removalOf is the chapter of the guide in dir.
func removalOf(dir string) (guide.Chapter, error) {
	chapters, err := guide.Read(dir)
	if err != nil {
		return guide.Chapter{}, err
	}
	return guide.Find(chapters, removal)
}

// removedText matches the text by which the chapter's commands find the lines and files to
// remove.
var removedText = regexp.MustCompile(`(?i)ngage|offset|counter`)

// checkRemoval refuses names that removedText matches, because the chapter would remove every
// line with them.
func checkRemoval(module string, to words) error {
	named := []flagged{{flag: "--module", word: module}}
	for _, w := range append(named, to.all()...) {
		if found := removedText.FindString(w.word); found != "" {
			return fmt.Errorf("%s: with --engagement no, lines and files with %q are removed, which %q contains", w.flag, found, w.word)
		}
	}
	return nil
}

// compiles fails unless the repository's packages and tests compile. A removal may have cut into
// lines of other code.
func compiles(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, generateTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "-C", dir, "vet", "./...").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the removal left a repository that go vet refuses: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// withoutEngagements removes the second aggregate from the fork in dir. It follows the chapter
// of the fork's own change guide, and then removes the chapter. The migrations that have made
// the tables stay, and one more migration drops the tables. So a merge of a later version of
// this repository finds the numbers that it expects.
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

// committed commits all that is in dir, for git's commands that expect it.
func committed(ctx context.Context, dir string) error {
	if _, err := git(ctx, dir, "add", "--all"); err != nil {
		return err
	}
	_, err := git(ctx, dir, "-c", "user.name=fork", "-c", "user.email=fork@localhost", "-c", "commit.gpgsign=false",
		"commit", "--quiet", "--no-verify", "--message=with engagements")
	return err
}

// rowOf is the chapter's row in the table of chapters.
var rowOf = regexp.MustCompile(`(?m)^\| \[` + removal + `\].*\n`)

// removeChapter removes the chapter from the guide, after its steps were done.
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

// formatAll formats the Go files, because removed lines may have held other lines in columns.
func formatAll(ctx context.Context, dir string) error {
	files, err := readAll(ctx, dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if path.Ext(f.name) != ".go" {
			continue
		}
		text, err := format.Source(f.content)
		if err != nil {
			return err
		}
		if bytes.Equal(text, f.content) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(f.name)), text, f.mode); err != nil {
			return err
		}
	}
	return nil
}
