package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	used    = regexp.MustCompile(`uses: ([^@\s]+)@(\S+)(.*)`)
	version = regexp.MustCompile(`^ # v\d+\.\d+\.\d+$`)
	named   = regexp.MustCompile(`(?m)(?:^ARG \w+_IMAGE=|^ +image: |/images )(\S+[:@]\S+)`)
	pinned  = regexp.MustCompile(`^([0-9a-f]{40}|.*@sha256:[0-9a-f]{64})$`)
	canMove = regexp.MustCompile("(?s)<!-- can move -->(.*?)<!-- end -->")
)

// terraformAction installs Terraform for all jobs.
const terraformAction = "../.github/actions/terraform/action.yml"

// TestUnpinnedNamesAreListed: a name that is not a digest may mean other code tomorrow.
// RELEASE.md lists each such name, so that a maintainer can pin it.
func TestUnpinnedNamesAreListed(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	workflows, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(workflows) < 2 {
		t.Fatalf("found workflows %v, %v", workflows, err)
	}
	for _, file := range append(workflows, terraformAction, "../Dockerfile", "../docker-compose.yml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range used.FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(found[2]) {
				names[found[1]+"@"+found[2]] = true
			} else if !version.MatchString(found[3]) {
				t.Errorf("%s: %s does not say of which version its commit is, and the updater does not raise it", file, found[1])
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

// TestTheUpdaterFindsEveryPin: a pin that nothing raises keeps its faults. The updater knows
// actions, Dockerfiles, compose files and go.mod by itself; it finds other pins by the
// patterns of its configuration.
func TestTheUpdaterFindsEveryPin(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../.github/renovate.json")
	if err != nil {
		t.Fatal(err)
	}
	var updater struct {
		Extends           []string
		MinimumReleaseAge string
		CustomManagers    []struct {
			ManagerFilePatterns, MatchStrings []string
		}
	}
	if err := json.Unmarshal(text, &updater); err != nil {
		t.Fatal(err)
	}
	for _, preset := range []string{"helpers:pinGitHubActionDigests", "docker:pinDigests"} {
		if !slices.Contains(updater.Extends, preset) {
			t.Errorf("the updater leaves names that can move: %s is missing", preset)
		}
	}
	if updater.MinimumReleaseAge == "" {
		t.Error("the updater takes a release at once, before a malicious one is noticed")
	}
	pins := map[string]*regexp.Regexp{
		"Makefile":                 regexp.MustCompile(`(?:\$\(TOOLS\)/\.| run )([a-z./-]+@v[0-9.]+)`),
		".github/workflows/ci.yml": regexp.MustCompile(`/images (\S+[:@]\S+)`),

		strings.TrimPrefix(terraformAction, "../"): regexp.MustCompile(`terraform_version: (\S+),`),
	}
	for file, pin := range pins {
		content, err := os.ReadFile("../" + file)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, manager := range updater.CustomManagers {
			if !regexp.MustCompile(strings.Trim(manager.ManagerFilePatterns[0], "/")).MatchString(file) {
				continue
			}
			for _, match := range manager.MatchStrings {
				values := regexp.MustCompile(match).FindAllString(string(content), -1)
				if len(values) != 1 {
					t.Errorf("%s: %s finds %q, want one pin", file, match, values)
				}
				found = append(found, values...)
			}
		}
		wanted := pin.FindAllStringSubmatch(string(content), -1)
		if len(wanted) == 0 {
			t.Errorf("%s has no pins", file)
		}
		for _, want := range wanted {
			if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, want[1]) }) {
				t.Errorf("%s: the updater does not find %s", file, want[1])
			}
		}
	}
}

// TestTerraformHasOneVersion: a plan of another version than the one that the checks have run with
// may change other things, and without a version it is the latest of the day.
func TestTerraformHasOneVersion(t *testing.T) {
	t.Parallel()
	action, err := os.ReadFile(terraformAction)
	if err != nil || !regexp.MustCompile(`\bterraform_version: \d+\.\d+\.\d+,`).Match(action) {
		t.Errorf("%s has no version of Terraform: %v\n%s", terraformAction, err, action)
	}
	workflows, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	jobs := 0
	for _, file := range workflows {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "hashicorp/setup-terraform@") {
			t.Errorf("%s installs a Terraform of its own", file)
		}
		jobs += strings.Count(string(text), "uses: ./.github/actions/terraform\n")
	}
	if jobs < 4 {
		t.Errorf("%d jobs install Terraform, want those that check, plan and apply, and the nightly one", jobs)
	}
}
