package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheMapOfAForkHasNoLivePage: a fork has neither the page nor its buttons.
func TestTheMapOfAForkHasNoLivePage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(forked(t), "docs", "map.md"))
	if err != nil || strings.Contains(string(text), "live page") {
		t.Errorf("docs/map.md of the fork has the live page (%v):\n%s", err, text)
	}
}

// TestAFailedCheckIsNotSkipped: without Terraform, the check fails, and only -optional skips it.
func TestAFailedCheckIsNotSkipped(t *testing.T) {
	t.Parallel()
	script, bin := filepath.Join(forked(t), "deploy", "terraform", "check.sh"), t.TempDir()
	for _, name := range []string{"bash", "dirname"} {
		program, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(program, filepath.Join(bin, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		args []string
		want string
		ok   bool
	}{
		{nil, "tf-check: terraform is not installed\n", false},
		{[]string{"-optional"}, "tf-check: skipped: terraform is not installed\n", true},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"), append([]string{script}, test.args...)...)
		cmd.Env = []string{"PATH=" + bin}
		out, err := cmd.CombinedOutput()
		if (err == nil) != test.ok || string(out) != test.want {
			t.Errorf("check.sh %q: %v, %q, want %q", test.args, err, out, test.want)
		}
	}
}
