package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/monitoring"
)

// The command works in the root of the repository, so its tests do too. They
// read files by full names: go test, which caches results, does not notice the
// change of directory.
func TestMain(m *testing.M) {
	root, err := filepath.Abs("../..")
	if err == nil {
		err = os.Chdir(root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	repository = root
	m.Run()
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args           string
		code           int
		stdout, stderr string // a part of each
	}{
		{"", 2, "", "unknown command"},
		{"help", 0, "Commands:", ""},
		{"--help", 0, "Commands:", ""},
		{"check --help", 0, "-optional", ""},
		{"destroy", 2, "", `unknown command "destroy"`},
		{"check -fast", 2, "", "-fast"},
		{"mutants now", 2, "", `unexpected argument "now"`},
		{"mutants -only (", 2, "", "-only: error parsing regexp"},
		{"mutants -only ^nothing$", 2, "", "no wrong edit has a name that matches"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr)
		if code != test.code || !strings.Contains(stdout.String(), test.stdout) || !strings.Contains(stderr.String(), test.stderr) {
			t.Errorf("tf %s: code %d, stdout %q, stderr %q", test.args, code, stdout.String(), stderr.String())
		}
	}
}

func TestWithoutTerraform(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"check"}, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), "is not installed") {
		t.Errorf("check: code %d, stderr %q, want what to install", code, stderr.String())
	}
	if code := run(t.Context(), []string{"e2e"}, &stdout, &stderr); code != 1 || strings.Count(stderr.String(), "\n") != 2 {
		t.Errorf("e2e: code %d, stderr of check and e2e %q, want what to install, in one line each", code, stderr.String())
	}
	if code := run(t.Context(), []string{"check", "-optional"}, &stdout, &stderr); code != 0 || !strings.HasPrefix(stdout.String(), "skipped: ") {
		t.Errorf("check -optional: code %d, stdout %q, want it skipped", code, stdout.String())
	}
}

// The module contains the time for which the inbox remembers events; this test
// notices when the code changes it.
func TestModuleHasTheInboxRetention(t *testing.T) {
	t.Parallel()
	if _, err := inboxRemembers(filepath.Join(repository, moduleDir)); err != nil {
		t.Error(err)
	}
}

// A copy of the module excludes the personal files of a deployment.
func TestCopyExcludesPersonalFiles(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	for _, name := range []string{"main.tf", "terraform.tfvars", "terraform.tfstate", "terraform.tfstate.backup", ".terraform.lock.hcl", ".terraform/modules.json", "tests/a.tftest.hcl"} {
		if err := copyFile("go.mod", from+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"main.tf": true, "tests/a.tftest.hcl": true, "terraform.tfvars": false, "terraform.tfstate": false, "terraform.tfstate.backup": false, ".terraform.lock.hcl": false, ".terraform": false} {
		if _, err := os.Stat(to + "/" + name); (err == nil) != want {
			t.Errorf("%s: %v, want it copied: %v", name, err, want)
		}
	}
}

// Each wrong edit still applies: without this test, only a run of `tf mutants`
// would notice.
func TestWrongEditsApply(t *testing.T) {
	t.Parallel()
	for _, w := range wrongEdits {
		m, err := newModule("none")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range w.edits {
			if err := e.apply(m); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
		}
		if err := m.remove(); err != nil {
			t.Error(err)
		}
	}
}

// The documents count the wrong edits.
func TestWrongEditsAreCounted(t *testing.T) {
	t.Parallel()
	want := fmt.Sprintf(" %d wrong edits", len(wrongEdits))
	for _, name := range []string{readme, "docs/promises.md"} {
		if !strings.Contains(read(t, name), want) {
			t.Errorf("%s does not say%s", name, want)
		}
	}
}

// A person who is alerted finds the runbook entry that the alert names.
func TestAlertsNameEntriesOfTheRunbook(t *testing.T) {
	t.Parallel()
	alerts, entries := read(t, moduleDir+"/monitoring.tf"), map[string]bool{}
	for _, title := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(read(t, "docs/runbook.md"), -1) {
		entries[monitoring.Alert{Entry: title[1]}.Anchor()] = true
	}
	anchors := regexp.MustCompile(`runbook_url}(#[^"]*)"`).FindAllStringSubmatch(alerts, -1)
	if policies := strings.Count(alerts, `"google_monitoring_alert_policy"`); len(anchors) < policies-1 { // all but those on log lines
		t.Errorf("%d policies name %d entries", policies, len(anchors))
	}
	// An alert on a log line has the entry of the alert on a metric that it stands for.
	for _, line := range regexp.MustCompile(`stands_for = "(\w+)"`).FindAllStringSubmatch(alerts, -1) {
		if !slices.ContainsFunc(monitoring.Alerts, func(a monitoring.Alert) bool { return a.Name == line[1] && !a.Google }) {
			t.Errorf("an alert on a log line stands for %q, which internal/monitoring does not have", line[1])
		}
	}
	for _, a := range anchors {
		if !entries[a[1]] {
			t.Errorf("the runbook has no entry %q", a[1])
		}
	}
}

// The plan counts an instance's connections as the services open them,
// including one for LISTEN.
func TestConnectionsOfAnInstance(t *testing.T) {
	t.Parallel()
	want := fmt.Sprintf("instance_connections = %d\n", connect.RequestConns+connect.LoopConns+connect.ProbeConns+1)
	if !strings.Contains(read(t, moduleDir+"/database.tf"), want) {
		t.Errorf("database.tf counts others than %s", want)
	}
}

// Each variable has a description and an example, and refuses impossible
// values; a boolean has none.
func TestVariablesAreDescribedAndValidated(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile(`(?ms)^(variable|output) "(\w+)" \{\n(.*?)\n\}$`)
	example := read(t, moduleDir+"/terraform.tfvars.example")
	files, err := filepath.Glob(filepath.Join(repository, moduleDir, "*.tf"))
	if err != nil {
		t.Fatal(err)
	}
	var module strings.Builder
	for _, name := range files {
		module.WriteString(read(t, moduleDir+"/"+filepath.Base(name)))
	}
	var variables int
	for _, b := range blocks.FindAllStringSubmatch(module.String(), -1) {
		if !strings.Contains(b[3], "  description = ") {
			t.Errorf("%s %s has no description", b[1], b[2])
		}
		if b[1] != "variable" {
			continue
		}
		variables++
		if !regexp.MustCompile(`(?m)^(# )?` + b[2] + ` += `).MatchString(example) {
			t.Errorf("variable %s is not in terraform.tfvars.example", b[2])
		}
		if !strings.Contains(b[3], "validation {") && !regexp.MustCompile(`type\s+=\s+bool`).MatchString(b[3]) {
			t.Errorf("variable %s takes anything", b[2])
		}
	}
	if variables < 10 {
		t.Errorf("found %d variables", variables)
	}
	for _, name := range []string{"variables.tf", "outputs.tf"} {
		for _, b := range blocks.FindAllStringSubmatch(read(t, moduleDir+"/"+serviceDir+name), -1) {
			if !strings.Contains(b[3], "  description = ") {
				t.Errorf("%s %s of %s has no description", b[1], b[2], serviceDir)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestGrantsOfAnyResource(t *testing.T) {
	t.Parallel()
	const state = `{"type":"test_state","test_state":{"root_module":{"resources":[
		{"type":"google_pubsub_topic","values":{"name":"t"}},
		{"type":"google_project_iam_binding","values":{"project":"p","role":"roles/owner","members":["user:a","user:b"]}},
		{"type":"google_storage_bucket_iam_policy","values":{"bucket":"b","policy_data":"{}"}},
		{"type":"google_project_iam_member","values":{"project":"p","role":"r","member":"m","condition":[{"expression":"x"}]}}],
		"child_modules":[{"child_modules":[{"resources":[{"type":"google_project_iam_member","values":{"project":"p","role":"r","member":"n"}}]}]}]}}}`
	var got []string
	err := events([]byte("Warning: none of JSON\n"+strings.ReplaceAll(state, "\n", "")), func(e event) error {
		lines, err := e.grants()
		got = append(got, lines...)
		return err
	})
	want := "user:a  roles/owner  project p|user:b  roles/owner  project p|?    storage bucket|m  r  project p if x|n  r  project p"
	if strings.Join(got, "|") != want || err != nil {
		t.Errorf("grants = %q, %v, want %q", got, err, want)
	}
}

// A basic role is refused, even if grantsFile lists it.
func TestNoBasicRoleIsGranted(t *testing.T) {
	t.Parallel()
	m := &module{root: t.TempDir()}
	lines := []string{"ci-plan  roles/run.viewer  project acme-test", "ci-plan  roles/viewer  project acme-test"}
	if err := os.MkdirAll(m.path("tests"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.path("tests/grants.txt"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sameGrants(m, lines); err == nil || strings.Count(err.Error(), "basic role") != 1 || !strings.Contains(err.Error(), "roles/viewer") {
		t.Errorf("sameGrants = %v, want roles/viewer refused", err)
	}
}

// An alert on a log line would never fire after the line was reworded.
func TestAlertsLookForLinesThatAreWritten(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, dir := range []string{"pkg/eventing", "services", "internal"} {
		err := filepath.WalkDir(filepath.Join(repository, dir), func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				code.WriteString(read(t, strings.TrimPrefix(name, repository+string(filepath.Separator))))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	alerts := read(t, moduleDir+"/monitoring.tf")
	lines := regexp.MustCompile(`jsonPayload\.message=\\"([^"\\]+)\\"`).FindAllStringSubmatch(alerts, -1)
	attributes := regexp.MustCompile(`jsonPayload\.(\w+)[>=]`).FindAllStringSubmatch(alerts, -1)
	if len(lines) < 3 || len(attributes) < 5 {
		t.Fatalf("found the lines %v and the attributes %v", lines, attributes)
	}
	for _, found := range append(lines, attributes...) {
		if found[1] != "message" && !strings.Contains(code.String(), `"`+found[1]+`"`) {
			t.Errorf("an alert looks for %q, which no code writes", found[1])
		}
	}
}

func TestObtainNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(pluginsVariable, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no registry answers
	got, err := obtain(ctx, false, io.Discard)
	if !errors.Is(err, errMissing) || (got != "" && !strings.Contains(err.Error(), "make tf-provider")) {
		t.Errorf("obtain = %q, %v, want what is missing", got, err)
	}
	if err := os.WriteFile(dir+"/terraform-provider-google_v8.1.0_x5", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err = obtain(ctx, false, io.Discard); got != "" && (got != dir || err != nil) {
		t.Errorf("obtain = %q, %v, want the provider that is there", got, err)
	}
}

// A mirror takes the place of the registry, which this test does not contact.
func TestDownload(t *testing.T) {
	plugins, err := present()
	if err != nil {
		t.Skip(err)
	}
	provider, err := filepath.Abs(filepath.Join(plugins, "terraform-provider-google"))
	if err != nil {
		t.Fatal(err)
	}
	mirror := t.TempDir()
	dir := filepath.Join(mirror, "registry.terraform.io/hashicorp/google/8.0.0", runtime.GOOS+"_"+runtime.GOARCH)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(provider, filepath.Join(dir, "terraform-provider-google_v8.0.0_x5")); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(mirror, "terraform.tfrc")
	if err := os.WriteFile(config, fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TF_CLI_CONFIG_FILE", config)
	into := t.TempDir()
	if err := download(t.Context(), into); err != nil {
		t.Fatal(err)
	}
	t.Setenv(pluginsVariable, into)
	if found, err := present(); err != nil || found != into {
		t.Errorf("after a download: %q, %v", found, err)
	}
}
