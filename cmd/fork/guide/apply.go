package guide

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Edit makes the edits of a chapter in the repository at root, including new files and removed
// files. It runs no command except `git rm` and `sed -i`, for which the files must be committed.
// It ends at the first step that fails. The steps before that stay done.
func (c Chapter) Edit(ctx context.Context, root string) error {
	for _, step := range c.Steps {
		if _, err := step.Apply(root); err != nil {
			return err
		}
		if !step.removes() {
			continue
		}
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", step.Text)
		cmd.Dir, cmd.Env = root, Environment()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s:%d: %w: %s", Document, step.Line, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// named are the variables with which git, in a hook or in a linked worktree, names the
// repository that it works in. `git rev-parse --local-env-vars` lists them.
var named = []string{
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE",
	"GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
}

// Environment returns the environment of a command that must work in the repository of its
// directory only.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(named, name)
	})
}

// removes reports whether the step only removes files and lines of files. Such a step is an
// edit, although a shell makes it.
func (s Step) removes() bool {
	for line := range strings.Lines(s.Text) {
		if !strings.HasPrefix(line, "git rm ") && !strings.HasPrefix(line, "sed -i ") && !strings.HasPrefix(line, "  ") {
			return false
		}
	}
	return s.File == ""
}

// Apply makes the step's edits or its new file in the repository at root, and formats Go. It
// returns the name of the file. It does not run commands.
func (s Step) Apply(root string) (name string, err error) {
	if s.File == "" {
		return "", nil
	}
	if name, err = numbered(root, s.File); err != nil {
		return "", err
	}
	on, text := filepath.Join(root, filepath.FromSlash(name)), s.Text
	if s.Edits == nil {
		err = absent(on)
	} else {
		text, err = s.edited(on)
	}
	if err == nil && path.Ext(name) == ".go" {
		text, err = formatted(text)
	}
	if err == nil {
		err = write(on, text)
	}
	if err != nil {
		return "", fmt.Errorf("%s:%d: %s: %w", Document, s.Line, name, err)
	}
	return name, nil
}

func absent(name string) error {
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return errors.New("it is no new file: it is there already")
	}
	return nil
}

func (s Step) edited(name string) (string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	lines := strings.Split(string(text), "\n")
	for _, edit := range s.Edits {
		if lines, err = apply(lines, strings.Split(edit, "\n")); err != nil {
			return "", err
		}
	}
	return strings.Join(lines, "\n"), nil
}

// apply makes an edit in the lines of a file. A line of the file that stays is left as it is.
func apply(file, edit []string) ([]string, error) {
	edit, err := expanded(file, edit)
	if err != nil {
		return nil, err
	}
	var old []string
	for _, line := range edit {
		if !strings.HasPrefix(line, "+") {
			old = append(old, squeezed(strings.TrimPrefix(line, "-")))
		}
	}
	at, err := find(file, old)
	if err != nil {
		return nil, err
	}
	result, next := slices.Clone(file[:at]), at
	for _, line := range edit {
		switch {
		case strings.HasPrefix(line, "+"):
			result = append(result, line[1:])
		case strings.HasPrefix(line, "-"):
			next++
		default:
			result = append(result, file[next])
			next++
		}
	}
	return append(result, file[next:]...), nil
}

// elided is the line of an edit that stands for all lines up to the next line of the edit.
const elided = "-..."

// expanded returns the edit with lines of the file in place of its elided lines.
func expanded(file, edit []string) ([]string, error) {
	at := slices.Index(edit, elided)
	if at < 0 {
		return edit, nil
	}
	var before []string
	for _, line := range edit[:at] {
		if !strings.HasPrefix(line, "+") {
			before = append(before, squeezed(strings.TrimPrefix(line, "-")))
		}
	}
	if at+1 == len(edit) || strings.HasPrefix(edit[at+1], "+") {
		return nil, errors.New("no line of the file ends what the edit elides")
	}
	start, err := find(file, before)
	if err != nil {
		return nil, err
	}
	start += len(before)
	length := slices.Index(file[start:], edit[at+1][1:])
	if length < 0 {
		return nil, fmt.Errorf("no line %q behind what the edit elides", edit[at+1][1:])
	}
	whole := slices.Clone(edit[:at])
	for _, line := range file[start : start+length] {
		whole = append(whole, "-"+line)
	}
	return expanded(file, append(whole, edit[at+1:]...))
}

// find returns the one place where the lines of an edit stand in a file.
func find(file, old []string) (at int, err error) {
	if len(old) == 0 {
		return 0, errors.New("the edit has no line of the file")
	}
	var places []int
	for i := range len(file) - len(old) + 1 {
		same := true
		for j, line := range old {
			same = same && squeezed(file[i+j]) == line
		}
		if same {
			places = append(places, i)
		}
	}
	if len(places) != 1 {
		return 0, fmt.Errorf("the lines %q are there %d times, want once", old, len(places))
	}
	return places[0], nil
}

// squeezed returns a line in the form for comparisons, because gofmt and a diff indent and align
// lines.
func squeezed(line string) string { return strings.Join(strings.Fields(line), " ") }

func formatted(text string) (string, error) {
	source, err := format.Source([]byte(text))
	return string(source), err
}

func write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// firstNumber is the number of the first migration that a service adds.
const firstNumber = 1000

// numbered returns the name of a file, with the number of the next migration in place of NNNNN.
func numbered(root, name string) (string, error) {
	if !strings.Contains(name, "NNNNN") {
		return name, nil
	}
	found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(path.Dir(name)), "*.sql"))
	if err != nil {
		return "", err
	}
	next := firstNumber
	for _, migration := range found {
		number, _, _ := strings.Cut(filepath.Base(migration), "_")
		if n, err := strconv.Atoi(number); err == nil {
			next = max(next, n+1)
		}
	}
	return strings.Replace(name, "NNNNN", fmt.Sprintf("%05d", next), 1), nil
}
