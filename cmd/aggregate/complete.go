package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/lockstep/cmd/fork/repo"
)

// toolTimeout bounds all runs of the tools for Go and protobuf, on a slow machine.
const toolTimeout = 15 * time.Minute

// checkTree returns an error if the repository at root has changes that are not committed.
func checkTree(ctx context.Context, root string) error {
	status, err := repo.Git(ctx, root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if status != "" {
		return fmt.Errorf("the tree has changes that are not committed; commit them first, so that git can take this one back. "+
			"Only if all of them are of a run that was cut off, `git checkout . && git clean -fd` removes them:\n%s",
			firstLines(status, 5))
	}
	return nil
}

func firstLines(text string, n int) string {
	lines := strings.SplitAfterN(text, "\n", n+1)
	if len(lines) > n {
		lines[n] = "…"
	}
	return strings.TrimRight(strings.Join(lines, ""), "\n")
}

func execute(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, firstLines(string(out), 20))
	}
	return nil
}

// complete adds to the change the code that is generated from proto/, and the schema of the topic.
// Then it compiles all packages that the change touches. It works in a temporary folder, and does
// not change the tree.
func (c *change) complete(ctx context.Context, progress io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "aggregate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := c.stage(dir); err != nil {
		return err
	}
	fmt.Fprintln(progress, "generate proto/ and the schema of the topic")
	if err := c.generate(ctx, dir); err != nil {
		return err
	}
	fmt.Fprintln(progress, "compile")
	return c.compile(ctx, dir)
}

// stage copies proto/ to dir/proto, and applies the change's edits of proto/ to the copy.
func (c *change) stage(dir string) error {
	err := os.CopyFS(filepath.Join(dir, "proto"), os.DirFS(filepath.Join(c.root, "proto")))
	if err != nil {
		return err
	}
	for name, text := range c.files {
		if strings.HasPrefix(name, "proto/") {
			if err := repo.Write(filepath.Join(dir, name), text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *change) generate(ctx context.Context, dir string) error {
	tools, err := filepath.Abs(filepath.Join(c.root, "build", "bin"))
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"lint"}, {"generate"}} {
		cmd := exec.CommandContext(ctx, filepath.Join(tools, "buf"), args...)
		cmd.Dir = filepath.Join(dir, "proto")
		cmd.Env = append(os.Environ(), "PATH="+tools+string(os.PathListSeparator)+os.Getenv("PATH"))
		if err := execute(cmd); err != nil {
			return fmt.Errorf("%w (make builds the tools: run `make aggregate`)", err)
		}
	}
	list, err := c.overlay(dir)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "run", "-overlay", list, "./cmd/schema", "-proto", filepath.Join(dir, "proto"),
		"-o", filepath.Join(dir, "deploy", "schemas"))
	cmd.Dir = c.root
	if err := execute(cmd); err != nil {
		return err
	}
	return c.collect(dir)
}

// collect adds to the change the files below dir that differ from the files of the tree.
func (c *change) collect(dir string) error {
	for _, made := range []string{"proto", "deploy"} {
		err := filepath.WalkDir(filepath.Join(dir, made), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			below, err := filepath.Rel(dir, name)
			if err != nil {
				return err
			}
			return c.takeOver(name, filepath.ToSlash(below))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// takeOver adds a generated file to the change, unless the tree has a file of that name with the
// same text. generated is the path of the file, and name is its path in the tree.
func (c *change) takeOver(generated, name string) error {
	text, err := os.ReadFile(generated)
	if err != nil {
		return err
	}
	had, err := os.ReadFile(filepath.Join(c.root, name))
	switch _, known := c.files[name]; {
	case known || err == nil && bytes.Equal(had, text):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		c.created = append(c.created, name)
	case err != nil:
		return err
	}
	c.files[name] = string(text)
	return nil
}

// compile compiles the packages that the change touches, and their tests. The files of the change
// replace the files of the tree.
func (c *change) compile(ctx context.Context, dir string) error {
	list, err := c.overlay(dir)
	if err != nil {
		return err
	}
	packages := map[string]bool{}
	for name := range c.files {
		if strings.HasSuffix(name, ".go") {
			packages["./"+filepath.ToSlash(filepath.Dir(name))] = true
		}
	}
	args := append([]string{"list", "-test", "-export", "-overlay", list}, slices.Sorted(maps.Keys(packages))...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.root
	if err := execute(cmd); err != nil {
		return fmt.Errorf("the code with a %q does not compile; another NAME, or another name of a field, may do: %w", c.aggregate.Name, err)
	}
	return nil
}

// overlay writes the Go files of the change to a folder in dir. It returns the path of an overlay
// file for the go command. With this file, the go command reads the files of the change in place of
// the files of the tree.
func (c *change) overlay(dir string) (list string, err error) {
	root, err := filepath.Abs(c.root)
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	for name, text := range c.files {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		staged := filepath.Join(dir, "overlay", name)
		if err := repo.Write(staged, text); err != nil {
			return "", err
		}
		replaced[filepath.Join(root, name)] = staged
	}
	encoded, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, repo.Write(list, string(encoded))
}

// write writes all files of the change to the tree.
func (c *change) write() error {
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		if err := repo.Write(filepath.Join(c.root, name), c.files[name]); err != nil {
			return err
		}
	}
	return nil
}
