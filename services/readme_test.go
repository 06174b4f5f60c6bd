package services_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/lockstep/internal/local/broker"
)

// grpcurl is a reader's tool, not ours: it is built for this test only.
const grpcurl = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"

var testedBlock = regexp.MustCompile("(?s)<!-- tested: services/readme_test.go -->\n```sh\n(.*?)```")

// TestREADME runs the calls that the README shows, one after the other in one
// shell, as a reader would paste them.
func TestREADME(t *testing.T) {
	if testing.Short() {
		t.Skip("builds grpcurl")
	}
	for _, tool := range []string{"bash", "curl", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("not installed: ", tool)
		}
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, broker.Local)
	t.Setenv("PUBSUB_EMULATOR_HOST", b.addr) // services of this process find the broker so
	w := newWorld(t, b)
	w.startVideo(t)
	w.startCatalog(t)

	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install", grpcurl)
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install grpcurl: %v\n%s", err, out)
	}
	script := "set -euo pipefail\n"
	for _, block := range testedBlock.FindAllStringSubmatch(string(readme), -1) {
		script += block[1] + "echo\n"
	}
	script = strings.NewReplacer("localhost:8080", w.videoAddr, "localhost:8081", w.catalogAddr).Replace(script)
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "PATH="+dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`"version":1`, `"version":2`, `"source":"projection"`, `"next_page_token"`, "SOURCE_PROJECTION", `"version": "3"`, `"engagements":[{`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the README's calls do not answer %s:\n%s", want, out)
		}
	}
}
