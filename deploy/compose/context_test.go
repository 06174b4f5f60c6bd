package compose_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBuildContextHasTheSources compares .dockerignore with the imports of the
// packages that the Dockerfile builds: a package that is not sent makes only the build
// of an image fail.
func TestBuildContextHasTheSources(t *testing.T) {
	t.Parallel()
	ignore, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	var sent []string
	for line := range strings.Lines(string(ignore)) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			sent = append(sent, dir+"/")
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{with .Module}}{{if .Main}}{{.Path}} {{$.ImportPath}}{{end}}{{end}}",
		"./services/video/cmd/video", "./services/catalog/cmd/catalog", "./cmd/dev")
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for line := range strings.Lines(string(out)) {
		module, path, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		packages++
		if dir := strings.TrimPrefix(path, module+"/") + "/"; !under(dir, sent) {
			t.Errorf("%s is not sent to the image's build: add it to .dockerignore", dir)
		}
	}
	if packages < 10 {
		t.Errorf("go list names %d packages of the module", packages)
	}
}

func under(dir string, sent []string) bool {
	for _, parent := range sent {
		if strings.HasPrefix(dir, parent) {
			return true
		}
	}
	return false
}
