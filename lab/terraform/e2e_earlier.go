package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// gitTime bounds one command of git, on local files.
const gitTime = time.Minute

// A revision is an earlier version of deploy/.
type revision struct {
	name string
	tree []byte // a tar of deploy/; nil if there is none
	// absent is the reason why tree is nil.
	absent string
}

// findEarlier returns the version that an upgrade starts from. If from names a version, it is that
// one. Otherwise it is the latest tag. Without a tag it is the version before the last change of
// the module. A copy without history has no earlier version. This is an error only if from is set.
func findEarlier(ctx context.Context, from string) (revision, error) {
	if from != "" {
		return archive(ctx, from)
	}
	name, err := git(ctx, "describe", "--tags", "--abbrev=0")
	if err != nil {
		name, err = beforeLastChange(ctx)
	}
	var earlier revision
	if err == nil {
		earlier, err = archive(ctx, name)
	}
	if err != nil {
		earlier = revision{absent: err.Error()}
	}
	return earlier, nil
}

// applied are the pathspecs of the files that Terraform reads in an apply.
var applied = []string{"--", ":(glob)" + moduleDir + "/**/*.tf", ":(glob)" + deployDir + "/schemas/*.proto"}

// beforeLastChange returns the commit before the last change of the files that
// Terraform reads. If there are uncommitted changes, it returns the commit of
// the last change.
func beforeLastChange(ctx context.Context) (string, error) {
	last, err := git(ctx, append([]string{"log", "-1", "--format=%h"}, applied...)...)
	if err != nil || last == "" {
		return "", errors.Join(fmt.Errorf("there is no history of %s here", deployDir), err)
	}
	pending, err := git(ctx, append([]string{"status", "--porcelain"}, applied...)...)
	if err != nil || pending != "" {
		return last, err
	}
	return last + "^", nil
}

func archive(ctx context.Context, name string) (revision, error) {
	if _, err := git(ctx, "rev-parse", "--verify", "--quiet", name+":"+moduleDir); err != nil {
		return revision{}, fmt.Errorf("there is no %s in revision %s: %w", moduleDir, name, err)
	}
	tree, err := git(ctx, "archive", "--format=tar", name, deployDir)
	return revision{name: name, tree: []byte(tree)}, err
}

func git(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	output, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	if args[0] == "archive" {
		return string(output), nil
	}
	return strings.TrimSpace(string(output)), nil
}

// clear deletes the files of the module, but not the state and the values of its variables.
func (m *module) clear() error {
	return filepath.WalkDir(filepath.Join(m.root, deployDir), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || personal.MatchString(name) {
			return err
		}
		return os.Remove(name)
	})
}

// replaceBy replaces the module by the version r.
func (m *module) replaceBy(r revision) error {
	if err := m.clear(); err != nil {
		return err
	}
	files := tar.NewReader(bytes.NewReader(r.tree))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read revision %s: %w", r.name, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(header.Name) {
			return fmt.Errorf("revision %s: %s leads out of it", r.name, header.Name)
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		to := filepath.Join(m.root, header.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return err
		}
	}
}

// restorePresent replaces the module by the present version.
func (m *module) restorePresent() error {
	if err := m.clear(); err != nil {
		return err
	}
	return copyTree(deployDir, filepath.Join(m.root, deployDir))
}
