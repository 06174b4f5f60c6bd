package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// gh is a stand-in for GitHub's command: it knows which images were attested.
const gh = `#!/bin/bash
echo "gh $*" >>"$STORE/calls"
grep -qxF "$3" "$STORE/attested"
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

// TestJobsThatSignIn: a job that can get a token of Google's runs no third party's
// code, and leaves no token of GitHub's on the disk.
func TestJobsThatSignIn(t *testing.T) {
	t.Parallel()
	_, all, _ := strings.Cut(workflow(t), "\njobs:\n")
	jobs := regexp.MustCompile(`(?m)^ {2}(\w+):\n((?:(?: {4}.*)?\n)+)`).FindAllStringSubmatch(all, -1)
	signsIn := map[string]string{"push": "PUSH", "plan": "PLAN", "apply": "RELEASE"}
	for _, job := range jobs {
		name, text := job[1], job[2]
		account, may := signsIn[name]
		if strings.Contains(text, "id-token") != may {
			t.Errorf("job %s may sign in: %v", name, !may)
		}
		if may && (!strings.Contains(text, account+"_SERVICE_ACCOUNT") || strings.Count(text, "_SERVICE_ACCOUNT") != 1) {
			t.Errorf("job %s does not sign in as %s alone", name, account)
		}
		for _, foreign := range []string{"$SCANNER", "docker build", "go run", "make "} {
			if may && strings.Contains(text, foreign) {
				t.Errorf("job %s signs in, and runs %s", name, foreign)
			}
		}
		if strings.Count(text, "actions/checkout@") != strings.Count(text, "persist-credentials: false") {
			t.Errorf("job %s keeps a token in .git", name)
		}
	}
	if len(jobs) != strings.Count(all, "\n    runs-on:") || len(jobs) < len(signsIn) || strings.Contains(workflow(t), "docker.sock") {
		t.Errorf("found %d jobs; the engine's socket: %v", len(jobs), strings.Contains(workflow(t), "docker.sock"))
	}
}

// TestApplyTimeLimitCoversMigrations: GitHub ends a job without asking Terraform.
func TestApplyTimeLimitCoversMigrations(t *testing.T) {
	t.Parallel()
	minutes := 60 // for the services and their dependencies
	for _, name := range []string{"video", "catalog"} {
		text, err := os.ReadFile("terraform/" + name + "_jobs.tf")
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`update = "(\d+)m"`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s_jobs.tf does not say how long a migration may take", name)
		}
		update, _ := strconv.Atoi(string(found[1])) // digits only
		minutes += update
	}
	found := regexp.MustCompile(`(?s)\n {2}apply:\n.*?timeout-minutes: (\d+)`).FindStringSubmatch(workflow(t))
	if found == nil {
		t.Fatal("apply has no timeout")
	}
	if has, _ := strconv.Atoi(found[1]); has < minutes {
		t.Errorf("apply ends after %d minutes, and may take %d", has, minutes)
	}
}

var (
	used    = regexp.MustCompile(`uses: ([^@\s]+)@(\S+)`)
	named   = regexp.MustCompile(`(?m)(?:^ARG \w+_IMAGE=|^ +image: |/images )(\S+[:@]\S+)`)
	pinned  = regexp.MustCompile(`^([0-9a-f]{40}|.*@sha256:[0-9a-f]{64})$`)
	canMove = regexp.MustCompile("(?s)<!-- can move -->(.*?)<!-- end -->")
)

// TestUnpinnedNamesAreListed: a name that is not a digest may mean other code tomorrow.
// RELEASE.md lists each such name, so that a maintainer can pin it.
func TestUnpinnedNamesAreListed(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, file := range []string{"../.github/workflows/ci.yml", "../Dockerfile", "../docker-compose.yml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range used.FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(found[2]) {
				names[found[1]+"@"+found[2]] = true
			}
		}
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(found[1]) {
				names[found[1]] = true
			}
		}
	}
	text, err := os.ReadFile("RELEASE.md")
	if err != nil {
		t.Fatal(err)
	}
	list := canMove.FindStringSubmatch(string(text))
	if list == nil || len(names) < 3 {
		t.Fatalf("RELEASE.md has no list; found %v", names)
	}
	listed := map[string]bool{}
	for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list[1], -1) {
		listed[found[1]] = true
		if !names[found[1]] {
			t.Errorf("RELEASE.md lists %s, which nothing uses by that name", found[1])
		}
	}
	for name := range names {
		if !listed[name] {
			t.Errorf("%s can move, and RELEASE.md does not list it", name)
		}
	}
}
