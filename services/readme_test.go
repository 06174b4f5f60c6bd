package services_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/porttest"
)

// grpcurl is a reader's tool, not ours: it is built for this test only.
const grpcurl = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"

var testedBlock = regexp.MustCompile("(?s)<!-- tested: services/readme_test.go -->\n```sh\n(.*?)```")

// TestREADME runs the calls that the README shows, one after the other in one
// shell, as a reader would paste them, with a token of an issuer like that of `make run`.
//
// LOCKSTEP_FULL=1 adds the calls over gRPC; .ci/run sets it. They need a build of
// grpcurl, with its own versions of gRPC and of Envoy's API.
func TestREADME(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "curl", "go", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("not installed: ", tool)
		}
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := testedBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 2 {
		t.Fatalf("the README has %d blocks of calls, want one over REST and one over gRPC", len(blocks))
	}
	w := newWorld(t, sharedBroker(t))
	tokens := startIssuer(t)
	w.auth.Issuer, w.auth.Audience = tokens.URL(), issuer.Audience
	w.startVideo(t)
	w.startCatalog(t)

	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	token := fmt.Sprintf("make -s --no-print-directory -C '%s' token ARGS='--issuer %s'", root, tokens.URL())
	wanted := []string{`"version":1`, `"version":2`, `"source":"projection"`, `"next_page_token"`}
	wanted = append(wanted, `"engagements":[{`, `"like_count":1`)
	if os.Getenv("LOCKSTEP_FULL") == "" {
		blocks = blocks[:1]
	} else {
		wanted = append(wanted, "SOURCE_PROJECTION", `"version": "3"`)
		install := exec.CommandContext(t.Context(), "go", "install", grpcurl)
		install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("install grpcurl: %v\n%s", err, out)
		}
	}
	script := "set -euo pipefail\n"
	for _, block := range blocks {
		script += block[1] + "echo\n"
	}
	script = strings.NewReplacer("make token", token, "localhost:8080", w.videoAddr, "localhost:8081", w.catalogAddr).Replace(script)
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Dir = dir
	// curl asks a proxy for localhost, too, if nothing says otherwise.
	shell.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "PATH="+dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range wanted {
		if !strings.Contains(string(out), want) {
			t.Errorf("the README's calls do not answer %s:\n%s", want, out)
		}
	}
}

func startIssuer(t *testing.T) *issuer.Issuer {
	t.Helper()
	lis := porttest.Listen(t)
	i, err := issuer.Start(lis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	return i
}
