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
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// Edit makes the edits of chapter c in the repository at root, including new files and removed
// files. The only commands that Edit runs are `git rm` and `sed -i`. `git rm` needs committed
// files. Edit ends at the first step that fails, and the edits of earlier steps stay.
func (c Chapter) Edit(ctx context.Context, root string) error {
	for _, step := range c.Steps {
		if _, err := step.Apply(root); err != nil {
			return err
		}
		if !step.removes() {
			continue
		}
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", step.Text)
		// In some locales, ranges such as [A-Z] of sed lack letters.
		cmd.Dir, cmd.Env = root, append(repo.Environment(), "LC_ALL=C")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s:%d: %w: %s", Document, step.Line, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// removes reports whether the step consists of `git rm` and `sed -i` commands. Edit runs such a
// step, because it only removes files and lines.
func (s Step) removes() bool {
	for line := range strings.Lines(s.Text) {
		if !strings.HasPrefix(line, "git rm ") && !strings.HasPrefix(line, "sed -i ") && !strings.HasPrefix(line, "  ") {
			return false
		}
	}
	return s.File == ""
}

// Apply makes the edits or the new file of step s in the repository at root, and formats a Go file.
// It returns the name of the file. If the step consists of commands, Apply does nothing.
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
		err = repo.Write(on, text)
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

// apply makes an edit in the lines of a file. Lines of the file that the edit keeps are not
// changed, even if the edit indents them in another way.
func apply(file, edit []string) ([]string, error) {
	edit, err := expanded(file, edit)
	if err != nil {
		return nil, err
	}
	at, err := find(file, ofFile(edit))
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

// elided is a line of an edit. It stands for all lines of the file up to the next line of the edit,
// and removes them.
const elided = "-..."

// expanded returns the edit with each elided line replaced by the lines of the file that it stands
// for.
func expanded(file, edit []string) ([]string, error) {
	at := slices.Index(edit, elided)
	if at < 0 {
		return edit, nil
	}
	before := ofFile(edit[:at])
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

// ofFile returns the lines of an edit that the file has before the edit, squeezed.
func ofFile(edit []string) (lines []string) {
	for _, line := range edit {
		if !strings.HasPrefix(line, "+") {
			lines = append(lines, squeezed(strings.TrimPrefix(line, "-")))
		}
	}
	return lines
}

// find returns the index in file at which the squeezed lines in old stand. It returns an error unless there
// is exactly one such index.
func find(file, old []string) (at int, err error) {
	if len(old) == 0 {
		return 0, errors.New("the edit has no line of the file")
	}
	var places []int
	for i := range len(file) - len(old) + 1 {
		if slices.EqualFunc(file[i:i+len(old)], old, func(line, want string) bool { return squeezed(line) == want }) {
			places = append(places, i)
		}
	}
	if len(places) != 1 {
		return 0, fmt.Errorf("the lines %q are there %d times, want once", old, len(places))
	}
	return places[0], nil
}

// squeezed returns a line with each run of spaces and tabs replaced by one space. Lines are
// compared in this form, because gofmt and a diff indent and align lines.
func squeezed(line string) string { return strings.Join(strings.Fields(line), " ") }

func formatted(text string) (string, error) {
	source, err := format.Source([]byte(text))
	return string(source), err
}

// numbered returns the name of a file. If the name contains NNNNN, numbered replaces it by the
// number of the next migration in the file's folder.
func numbered(root, name string) (string, error) {
	if !strings.Contains(name, "NNNNN") {
		return name, nil
	}
	next, err := repo.NextMigration(filepath.Join(root, filepath.FromSlash(path.Dir(name))))
	return strings.Replace(name, "NNNNN", next, 1), err
}
