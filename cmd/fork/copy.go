package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// A file is a file of a repository. Its name is its path from the root, with slashes.
type file struct {
	name    string
	content []byte
	mode    fs.FileMode
}

// readRepository returns the files for a fork of the repository at dir, still in the words of that
// repository. module is the module path of that repository.
func readRepository(ctx context.Context, dir string) (files []file, module string, err error) {
	if module, err = repo.Module(dir); err != nil {
		return nil, "", err
	}
	all, err := readAll(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	for _, f := range all {
		// If this repository is a fork, its own forks get the added files again.
		if isLeftOut(f.name) || added[f.name] != "" {
			continue
		}
		if f, err = edited(f); err != nil {
			return nil, "", err
		}
		files = append(files, f)
	}
	for name, from := range added {
		content, err := part(from)
		if err != nil {
			return nil, "", err
		}
		files = append(files, file{name: name, content: content, mode: 0o755})
	}
	return files, module, nil
}

// readAll returns the files that git lists, in the state on disk. These are the tracked files and
// the new files that are not ignored.
func readAll(ctx context.Context, dir string) (files []file, err error) {
	list, err := repo.Git(ctx, dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if _, missing := os.Stat(filepath.Join(dir, ".git")); err != nil && missing != nil {
		return nil, fmt.Errorf("%w; an unpacked archive needs `git init` first", err)
	}
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		f, err := readFile(dir, name)
		// Git also lists a tracked file that was deleted, until the deletion is staged.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if err == nil {
			files = append(files, f)
		}
	}
	return files, nil
}

// readFile gives the owner the right to write, which the files of a read-only checkout lack.
func readFile(dir, name string) (file, error) {
	on := filepath.Join(dir, filepath.FromSlash(name))
	info, err := os.Stat(on)
	if err != nil {
		return file{}, err
	}
	content, err := os.ReadFile(on)
	return file{name: name, content: content, mode: info.Mode().Perm() | 0o200}, err
}

// edited returns f with the content that a fork has, still in the words of this repository.
func edited(f file) (_ file, err error) {
	if replacement, found := instead[f.name]; found {
		if f.content, err = part(replacement); err != nil {
			return f, err
		}
	}
	if !isBinary(f.content) {
		if f.content, err = cut(f.name, f.content); err != nil {
			return f, err
		}
	}
	if path.Ext(f.name) == ".md" {
		f.content = unlink(f.name, f.content)
	}
	return f, nil
}

// isBinary reports whether a file is binary. It uses git's test: a NUL byte in the first 8,000
// bytes.
func isBinary(content []byte) bool { return bytes.IndexByte(content[:min(len(content), 8000)], 0) >= 0 }

// lines returns the number of lines of a text file. It returns 0 for a binary file.
func (f file) lines() int {
	if isBinary(f.content) {
		return 0
	}
	return bytes.Count(f.content, []byte("\n"))
}

// aside stands in for the module path while words are replaced, because the module path may contain
// words that would be replaced.
const aside = "\x00module\x00"

// renamed returns the files with the words and the module path of a fork.
func renamed(files []file, from, to words, oldModule, module string) ([]file, error) {
	r := newRenamer(from, to, contexts)
	resolved := from.ambiguous() && !to.ambiguous()
	all := make([]file, 0, len(files))
	for _, f := range files {
		if resolved && f.name == "cmd/fork/contexts_test.go" {
			continue
		}
		if replacement, found := unambiguous[f.name]; found && resolved {
			content, err := part(replacement)
			if err != nil {
				return nil, err
			}
			f.content = content
		}
		if f.name != "LICENSE" && !isBinary(f.content) {
			var err error
			if f, err = r.file(f, oldModule, module); err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
		}
		all = append(all, f)
	}
	return all, nil
}

// grants is the file with a sorted line for each grant.
const grants = "deploy/terraform/tests/grants.txt"

// imports matches the imports of a file of protobuf.
var imports = regexp.MustCompile(`(?m)(^import "[^"]+";\n)+`)

// file replaces the words in the name and the text of f. In the text it also replaces the path
// oldModule by module.
func (r *renamer) file(f file, oldModule, module string) (file, error) {
	text := strings.ReplaceAll(string(f.content), oldModule, aside)
	if r.from != r.to {
		words := r.text(f.name, text)
		if path.Ext(f.name) != ".go" {
			words = realigned(text, words)
		}
		switch {
		case f.name == grants:
			words = repo.SortedLines(words)
		case path.Ext(f.name) == ".proto":
			words = imports.ReplaceAllStringFunc(words, repo.SortedLines)
		}
		f.name, text = r.name(f.name), words
	}
	f.content = []byte(strings.ReplaceAll(text, aside, module))
	if path.Ext(f.name) != ".go" {
		return f, nil
	}
	// The new words have other lengths and another order. So gofmt may have to sort imports and
	// align fields.
	formatted, err := format.Source(f.content)
	f.content = formatted
	return f, err
}

// write makes the repository in dir. The directory dir must be empty or absent.
func write(ctx context.Context, dir string, files []file) error {
	for _, f := range files {
		to := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, f.content, f.mode); err != nil {
			return err
		}
	}
	return initialize(ctx, dir)
}

// initialize makes a git repository without a commit.
func initialize(ctx context.Context, dir string) error {
	_, err := repo.Git(ctx, dir, "init", "--quiet", "--initial-branch=main")
	return err
}
