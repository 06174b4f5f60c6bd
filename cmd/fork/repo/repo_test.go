package repo

import (
	"os/exec"
	"strings"
	"testing"
)

func TestEnvironmentNamesNoOtherRepository(t *testing.T) {
	t.Setenv("GIT_DIR", "/other/.git")
	t.Setenv("GOWORK", "/other/go.work")
	list := exec.CommandContext(t.Context(), "env")
	list.Env = Environment()
	if out, err := list.Output(); err != nil || strings.Contains(string(out), "=/other/") {
		t.Errorf("%v, a command has\n%s", err, out)
	}
}
