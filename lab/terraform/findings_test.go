package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// A run that was cut off goes on where it was, also with half a line at its file's end. After a
// change of the module or of the provider, each wrong edit is examined again.
func TestARunGoesOnWhereItWasCutOff(t *testing.T) {
	root, plugins := t.TempDir(), t.TempDir()
	defer func(before string) { repository = before }(repository)
	if err := copyTree(filepath.Join(repository, deployDir), filepath.Join(root, deployDir)); err != nil {
		t.Fatal(err)
	}
	if err := copyFile(filepath.Join(repository, moduleDir, runbook), filepath.Join(root, moduleDir, runbook)); err != nil {
		t.Fatal(err)
	}
	repository = root
	write := func(name, content string) {
		t.Helper()
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(content); err != nil {
			t.Fatal(err)
		}
	}
	provider := filepath.Join(plugins, "terraform-provider-google_v8")
	write(provider, "a release")
	file := filepath.Join(root, "build", "caught.jsonl")
	read := func() *findings {
		t.Helper()
		known, err := readFindings(file, plugins)
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	first, second := finding{Name: "one", Level: "grants", Says: "missing"}, finding{Name: "two", Level: "test", Says: "wrong"}
	if err := read().add(first); err != nil {
		t.Fatal(err)
	}
	write(file, `{"of":"`)
	if err := read().add(second); err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for name, want := range map[string]string{"one": "grants", "two": "test", "three": ""} {
		got, err := mutant{name: name}.find(interrupted, plugins, &running{}, read())
		if (err == nil) != (want != "") || err == nil && got.Level != want {
			t.Errorf("%s: caught by %q, %v, want %q", name, got.Level, err, want)
		}
	}
	changes := map[string]string{"module": filepath.Join(root, moduleDir, "video.tf"), "runbook": filepath.Join(root, moduleDir, runbook), "provider": provider}
	for name, changed := range changes {
		if err := read().add(first); err != nil {
			t.Fatal(err)
		}
		write(changed, "\n")
		if _, known := read().of("one"); known {
			t.Errorf("a finding outlives a change of the %s", name)
		}
	}
	for range 2 {
		if err := read().remove(); err != nil {
			t.Error(err)
		}
	}
}
