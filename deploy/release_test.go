package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docker is a stand-in for the engine and for a registry. It keeps built and loaded
// images in $STORE/local and pushed ones in $STORE/remote, each image as a file with
// its digest. A saved image is such a file, too.
const docker = `#!/bin/bash
set -euo pipefail
echo "$*" >>"$STORE/calls"
last=${!#}
key() { echo "${1//\//_}"; }
case "$1" in
login) cat >/dev/null ;;
build)
  while [ "$1" != --tag ]; do shift; done
  echo "sha256:$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')" >"$STORE/local/$(key "$2")" ;;
save) cp "$STORE/local/$(key "$last")" "$3"; basename "$last" >>"$3" ;;
load) head -1 "$4" >"$STORE/local/lockstep_$(tail -1 "$4")" ;;
run) case "$*" in *--exit-code*) [ ! -e "$STORE/vulnerable" ] ;; esac ;;
tag) cp "$STORE/local/$(key "$2")" "$STORE/local/$(key "$3")" ;;
push) cp "$STORE/local/$(key "$last")" "$STORE/remote/$(key "$last")" ;;
inspect)
  digest=$(cat "$STORE/local/$(key "$last")")
  case "$3" in *.Id*) echo "$digest" ;; *) echo "${last%:*}@$digest" ;; esac ;;
manifest) grep -qr "${last#*@}" "$STORE/remote" ;;
*) echo "docker $*: unknown here" >&2; exit 2 ;;
esac
`

// gh is a stand-in for GitHub's command: it knows which images have which attestation.
const gh = `#!/bin/bash
echo "gh $*" >>"$STORE/calls"
grep -qxF "$3 $7" "$STORE/attested"
`

// A workflowRunner runs steps of the workflow's file, with stand-ins for their tools.
type workflowRunner struct{ dir, bash string }

func newWorkflowRunner(t *testing.T) workflowRunner {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash runs the steps: ", err)
	}
	w := workflowRunner{dir: t.TempDir(), bash: bash}
	for _, dir := range []string{"local", "remote", "bin"} {
		if err := os.Mkdir(filepath.Join(w.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.write(t, "bin/docker", docker)
	w.write(t, "bin/gh", gh)
	w.write(t, "attested", "")
	w.write(t, "build", step(t, "images"))
	w.write(t, "push", step(t, "digests"))
	return w
}

// step is the script of the workflow's step of that id.
func step(t *testing.T, id string) string {
	t.Helper()
	script := regexp.MustCompile(`(?m)^      - id: ` + id + `\n(?:        .*\n)*?        run: \|\n((?:          .*\n)+)`).FindStringSubmatch(workflow(t))
	if script == nil {
		t.Fatalf("the workflow has no step %s", id)
	}
	return script[1]
}

func workflow(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../.github/workflows/ci.yml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (w workflowRunner) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func (w workflowRunner) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// clear is another machine: its engine has no image.
func (w workflowRunner) clear(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range append(dirs, "local") {
		if err := os.RemoveAll(filepath.Join(w.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(w.dir, "local"), 0o700); err != nil {
		t.Fatal(err)
	}
}

const registry = "region-docker.pkg.dev/acme/lockstep"

// run returns a step's outputs.
func (w workflowRunner) run(t *testing.T, step string, environment ...string) (outputs map[string]string, err error) {
	t.Helper()
	w.write(t, "outputs", "")
	cmd := exec.CommandContext(t.Context(), w.bash, "-e", filepath.Join(w.dir, step))
	cmd.Dir = w.dir
	cmd.Env = append([]string{
		"PATH=" + filepath.Join(w.dir, "bin") + ":" + os.Getenv("PATH"), "STORE=" + w.dir, "SCANNER=docker run scanner",
		"REGISTRY=" + registry, "TOKEN=t", "GITHUB_SHA=abc", "GITHUB_RUN_ID=7", "GITHUB_RUN_ATTEMPT=1",
		"GITHUB_SERVER_URL=https://github.com", "GITHUB_REPOSITORY=acme/pair", "GIVEN_VIDEO=", "GIVEN_CATALOG=",
		"GITHUB_OUTPUT=" + filepath.Join(w.dir, "outputs"), "GITHUB_STEP_SUMMARY=" + filepath.Join(w.dir, "summary"),
	}, environment...)
	printed, err := cmd.CombinedOutput()
	t.Logf("%s: %v\n%s", step, err, printed)
	text, unreadable := os.ReadFile(filepath.Join(w.dir, "outputs"))
	if unreadable != nil {
		t.Fatal(unreadable)
	}
	outputs = map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		outputs[name] = value
	}
	return outputs, err
}

// build builds both images, and passes them to a step on another machine.
func (w workflowRunner) build(t *testing.T) (environment []string) {
	t.Helper()
	w.clear(t, "images")
	built, err := w.run(t, "build")
	if err != nil {
		t.Fatal(err)
	}
	w.clear(t)
	return []string{"BUILT_VIDEO=" + built["video"], "BUILT_CATALOG=" + built["catalog"]}
}

// TestReleaseTakesImagesByDigest: any pusher can take a tag first, so no tag decides
// which image is released.
func TestReleaseTakesImagesByDigest(t *testing.T) {
	t.Parallel()
	w := newWorkflowRunner(t)
	const foreign = "sha256:6666666666666666666666666666666666666666666666666666666666666666"
	for _, tag := range []string{"abc", "abc-7-1"} {
		w.write(t, "remote/"+strings.ReplaceAll(registry, "/", "_")+"_video:"+tag, foreign+"\n")
	}
	built := w.build(t)
	pushed, err := w.run(t, "push", built...)
	if err != nil {
		t.Fatal(err)
	}
	for service, id := range map[string]string{"video": built[0], "catalog": built[1]} {
		_, digest, _ := strings.Cut(id, "=")
		if pushed[service] != registry+"/"+service+"@"+digest || pushed[service+"_pushed"] != digest {
			t.Errorf("%s = %s, to be attested: %s; want what was built: %s", service, pushed[service], pushed[service+"_pushed"], digest)
		}
	}
	again, err := w.run(t, "push", append(w.build(t), "GITHUB_RUN_ATTEMPT=2")...)
	if err != nil || again["video"] == pushed["video"] {
		t.Errorf("a further run: %v, %v, want an image of its own", again, err)
	}
}

// TestOnlyScannedImagesArePushed: the file may not change between the jobs.
func TestOnlyScannedImagesArePushed(t *testing.T) {
	t.Parallel()
	w := newWorkflowRunner(t)
	built := w.build(t)
	w.write(t, "images/catalog.tar", "sha256:"+strings.Repeat("6", 64)+"\ncatalog\n")
	if pushed, err := w.run(t, "push", built...); err == nil || pushed["catalog"] != "" {
		t.Errorf("another file: %v, %v, want it refused", pushed, err)
	}
	w = newWorkflowRunner(t)
	w.write(t, "vulnerable", "")
	if built, err := w.run(t, "build"); err == nil || len(built) > 0 {
		t.Errorf("a vulnerable image: %v, %v, want nothing handed on", built, err)
	}
}

// TestAGivenImageIsOneOfOurs: a rollback names an image of this registry by digest.
func TestAGivenImageIsOneOfOurs(t *testing.T) {
	t.Parallel()
	w := newWorkflowRunner(t)
	built := w.build(t)
	pushed, err := w.run(t, "push", built...)
	if err != nil {
		t.Fatal(err)
	}
	back, err := w.run(t, "push", append(built, "GITHUB_SHA=def", "GIVEN_VIDEO="+pushed["video"])...)
	if err != nil || back["video"] != pushed["video"] || back["video_pushed"] != "" {
		t.Errorf("back to %s: %v, %v", pushed["video"], back, err)
	}
	digest := "@sha256:" + strings.Repeat("6", 64)
	w.write(t, "remote/somewhere", digest[1:]+"\n") // it is there, and not ours
	for _, given := range []string{
		registry + "/video:abc-7-1", "docker.io/somebody/video" + digest, registry + "/catalog" + digest, registry + "/video@sha256:" + strings.Repeat("7", 64),
		registry + "/video" + digest + " --privileged", strings.ReplaceAll(registry, ".", "x") + "/video" + digest,
	} {
		if got, err := w.run(t, "push", append(built, "GIVEN_VIDEO="+given)...); err == nil || got["video"] != "" {
			t.Errorf("%s: %v, %v, want it refused", given, got, err)
		}
	}
}
