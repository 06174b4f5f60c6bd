package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docker stands in for the engine and for a registry whose tags stay: it keeps what
// was built in $STORE/local and what was pushed in $STORE/remote, each image as a file
// with its digest.
const docker = `#!/bin/bash
set -euo pipefail
echo "$*" >>"$STORE/calls"
last=${!#}
key() { echo "${1//\//_}"; }
case "$1" in
login) cat >/dev/null ;;
pull) cp "$STORE/remote/$(key "$last")" "$STORE/local/$(key "$last")" ;;
build)
  while [ "$1" != --tag ]; do shift; done
  echo "sha256:$(date +%s%N)" >"$STORE/local/$(key "$2")" ;;
run) [ ! -e "$STORE/vulnerable" ] ;;
push)
  if [ -e "$STORE/remote/$(key "$last")" ]; then echo "the tag is immutable: $last" >&2; exit 1; fi
  cp "$STORE/local/$(key "$last")" "$STORE/remote/$(key "$last")" ;;
inspect) echo "${last%:*}@$(cat "$STORE/local/$(key "$last")")" ;;
manifest) grep -qr "${last#*@}" "$STORE/remote" ;;
*) echo "docker $*: unknown here" >&2; exit 2 ;;
esac
`

var digestsStep = regexp.MustCompile(`(?m)^      - id: digests\n(?:        .*\n)*?        run: \|\n((?:          .*\n)+)`)

// A workshop runs the workflow's step that pushes images, as often as asked.
type workshop struct{ dir, script string }

func newWorkshop(t *testing.T) workshop {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash runs the step: ", err)
	}
	workflow, err := os.ReadFile("../.github/workflows/ci.yml")
	if err != nil {
		t.Fatal(err)
	}
	step := digestsStep.FindSubmatch(workflow)
	if step == nil {
		t.Fatal("the workflow has no step digests")
	}
	w := workshop{dir: t.TempDir(), script: bash}
	for _, dir := range []string{"local", "remote", "bin"} {
		if err := os.Mkdir(filepath.Join(w.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.write(t, "bin/docker", docker)
	w.write(t, "step", string(step[1]))
	return w
}

func (w workshop) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// run returns the step's outputs, on a machine that has no image yet.
func (w workshop) run(t *testing.T, environment ...string) (outputs string, err error) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(w.dir, "local")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(w.dir, "local"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write(t, "outputs", "")
	cmd := exec.CommandContext(t.Context(), w.script, "-e", filepath.Join(w.dir, "step"))
	cmd.Env = append([]string{
		"PATH=" + filepath.Join(w.dir, "bin") + ":" + os.Getenv("PATH"), "STORE=" + w.dir, "SCAN=docker run scanner",
		"REGISTRY=region-docker.pkg.dev/acme/lockstep", "TOKEN=t", "GITHUB_SHA=abc", "GITHUB_REF_NAME=main",
		"GITHUB_SERVER_URL=https://github.com", "GITHUB_REPOSITORY=acme/pair", "GIVEN_VIDEO=", "GIVEN_CATALOG=",
		"GITHUB_OUTPUT=" + filepath.Join(w.dir, "outputs"), "GITHUB_STEP_SUMMARY=" + filepath.Join(w.dir, "summary"),
	}, environment...)
	printed, err := cmd.CombinedOutput()
	t.Logf("%s", printed)
	text, unreadable := os.ReadFile(filepath.Join(w.dir, "outputs"))
	if unreadable != nil {
		t.Fatal(unreadable)
	}
	return string(text), err
}

// TestAReleaseTakesWhatWasPushed: whoever runs the workflow on a commit that is on main
// already finds its tags taken, and what is behind them is what was planned.
func TestAReleaseTakesWhatWasPushed(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	pushed, err := w.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if want := regexp.MustCompile(`^video=region-docker\.pkg\.dev/acme/lockstep/video@sha256:\d+\ncatalog=\S+/catalog@sha256:\d+\n$`); !want.MatchString(pushed) {
		t.Errorf("outputs = %q, want both images by digest", pushed)
	}
	released, err := w.run(t)
	if err != nil || released != pushed {
		t.Errorf("a further run: %q, %v, want %q", released, err, pushed)
	}
	video, _, _ := strings.Cut(strings.TrimPrefix(pushed, "video="), "\n")
	if back, err := w.run(t, "GITHUB_SHA=def", "GIVEN_VIDEO="+video); err != nil || !strings.HasPrefix(back, "video="+video+"\n") {
		t.Errorf("back to %s: %q, %v", video, back, err)
	}
	if gone, err := w.run(t, "GIVEN_VIDEO="+video+"0"); err == nil {
		t.Errorf("back to an image that is not there: %q, want an error", gone)
	}
}

// TestNothingVulnerableIsPushed: what is scanned is what would run.
func TestNothingVulnerableIsPushed(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.write(t, "vulnerable", "")
	outputs, err := w.run(t)
	remote, unreadable := os.ReadDir(filepath.Join(w.dir, "remote"))
	if err == nil || unreadable != nil || len(remote) > 0 {
		t.Errorf("outputs %q, %v; pushed %v, %v: want nothing pushed", outputs, err, remote, unreadable)
	}
}
