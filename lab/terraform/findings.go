package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// findingsFile has the wrong edits that a run has caught so far. A run that succeeds removes the
// file. So the file exists only after a run that was cut off or did not catch all wrong edits.
const findingsFile = "build/tf-mutants.jsonl"

// A finding names the level that catches a wrong edit, and has its message.
type finding struct {
	// Of is the digest of the module, the program and the provider that the finding is about.
	// digestOf computes it.
	Of    string `json:"of"`
	Name  string `json:"name"`
	Level string `json:"level"`
	Says  string `json:"says"`
}

// findings has the findings about the present module, program and provider.
type findings struct {
	file, digest string
	byName       map[string]finding
}

// readFindings reads the findings in file. It skips findings about another module, program or
// provider.
func readFindings(file, plugins string) (*findings, error) {
	digest, err := digestOf(plugins)
	if err != nil {
		return nil, err
	}
	f := &findings{file: file, digest: digest, byName: map[string]finding{}}
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range bytes.Lines(content) {
		var found finding
		if json.Unmarshal(line, &found) == nil && found.Of == digest { // the last line may be cut off
			f.byName[found.Name] = found
		}
	}
	return f, nil
}

func (f *findings) of(name string) (finding, bool) {
	found, ok := f.byName[name]
	return found, ok
}

func (f *findings) add(found finding) error {
	found.Of = f.digest
	f.byName[found.Name] = found
	line, err := json.Marshal(found)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.file), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(f.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// The last line of the file may be cut off. So a finding begins with a line break.
	_, err = fmt.Fprintf(file, "\n%s\n", line)
	return errors.Join(err, file.Close())
}

func (f *findings) remove() error {
	if err := os.Remove(f.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// digestOf returns the digest of the module's copy, of this program and of the provider.
func digestOf(plugins string) (string, error) {
	m, err := newModule(plugins)
	if err != nil {
		return "", err
	}
	defer m.remove() //nolint:errcheck // it is in a temporary directory
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	providers, err := filepath.Glob(filepath.Join(plugins, "terraform-provider-google*"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	add := func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		fmt.Fprintln(sum, filepath.Base(name), len(content))
		_, _ = sum.Write(content) // it never fails
		return err
	}
	for _, part := range append(providers, m.root, self) {
		if err := filepath.WalkDir(part, add); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
