package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// grantsFile has one line for each permission that the module grants in a project with all
// features.
const grantsFile = moduleDir + "/tests/grants.txt"

// grantsTest is the test that creates a project with all features for grantsFile.
const grantsTest = "tests/grants.tftest.hcl"

// accessType matches the type of a resource that grants access.
var accessType = regexp.MustCompile(`^google_(.+)_iam_(member|binding|policy)$`)

// targets are attributes of a grant. One of them names the resource that the grant is about.
var targets = []string{"topic", "subscription", "schema", "secret_id", "service_account_id", "repository", "name", "project"}

// short removes the parts of a line that are the same in every line.
var short = strings.NewReplacer(
	"serviceAccount:", "", "@acme-test.iam.gserviceaccount.com", "", "projects/acme-test/serviceAccounts/", "",
	"projects/acme-test/roles/", "",
	"projects/123456789012/locations/global/workloadIdentityPools/", "",
)

// basic matches the roles that are older than IAM. They are never allowed, even if grantsFile has
// them.
var basic = regexp.MustCompile(` {2}roles/(owner|editor|viewer|browser) {2}`)

// grantsUnchanged compares all grants with grantsFile. Terraform's assertions cannot do this. Each
// assertion checks the grant that it names, so no assertion fails if another grant is added.
func grantsUnchanged(ctx context.Context, m *module) (string, error) {
	got, err := grants(ctx, m)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d, as in %s", len(got), grantsFile), sameGrants(m, got)
}

// sameGrants compares the lines in got with the lines of grantsFile.
func sameGrants(m *module, got []string) error {
	want, err := os.ReadFile(m.path("tests/grants.txt"))
	if err != nil {
		return err
	}
	listed := strings.Split(strings.TrimSpace(string(want)), "\n")
	var wrong []error
	for _, line := range got {
		if basic.MatchString(line) {
			wrong = append(wrong, fmt.Errorf("no identity may have a basic role, which is hundreds of permissions, of logs too: %s", line))
		}
		if !slices.Contains(listed, line) {
			wrong = append(wrong, fmt.Errorf("%s does not list: %s", grantsFile, line))
		}
	}
	for _, line := range listed {
		if !slices.Contains(got, line) {
			wrong = append(wrong, fmt.Errorf("the module does not grant: %s", line))
		}
	}
	return errors.Join(wrong...)
}

func writeGrants(ctx context.Context, m *module) error {
	lines, err := grants(ctx, m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(repository, grantsFile), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// grants returns all grants in sorted order. Each is a line with the member, the role and the
// resource.
func grants(ctx context.Context, m *module) ([]string, error) {
	lines := map[string]bool{}
	err := m.test(ctx, func(e event) error {
		found, err := e.grants()
		for _, line := range found {
			lines[line] = true
		}
		return err
	}, "-verbose", "-filter="+grantsTest)
	if err == nil && len(lines) == 0 {
		err = fmt.Errorf("%s left no grant", grantsTest)
	}
	return slices.Sorted(maps.Keys(lines)), err
}

// grants returns the grants in the state that the event has. Only events of the type test_state
// have a state.
func (e event) grants() (lines []string, err error) {
	if e.Type != "test_state" {
		return nil, nil
	}
	var state struct {
		Root resources `json:"root_module"`
	}
	if err := json.Unmarshal(e.State, &state); err != nil {
		return nil, fmt.Errorf("read the test's state: %w", err)
	}
	return state.Root.grants(), nil
}

// resources are the resources of a module in a Terraform state, and those of the modules that it calls.
type resources struct {
	Own    []resource  `json:"resources"`
	Called []resources `json:"child_modules"`
}

func (r resources) grants() (lines []string) {
	for _, own := range r.Own {
		lines = append(lines, own.grants()...)
	}
	for _, called := range r.Called {
		lines = append(lines, called.grants()...)
	}
	return lines
}

// A resource is one resource of a Terraform state.
type resource struct {
	Type   string         `json:"type"`
	Values map[string]any `json:"values"`
}

// grants returns a line for each member that resource r grants something to. If r grants nothing,
// there is no line.
func (r resource) grants() []string {
	kind := accessType.FindStringSubmatch(r.Type)
	if kind == nil {
		return nil
	}
	target := []string{strings.ReplaceAll(kind[1], "_", " ")}
	if i := slices.IndexFunc(targets, func(name string) bool { return text(r.Values[name]) != "" }); i >= 0 {
		target = append(target, text(r.Values[targets[i]]))
	}
	for _, c := range list(r.Values["condition"]) {
		condition, _ := c.(map[string]any)
		target = append(target, "if", text(condition["expression"]))
	}
	members := list(r.Values["members"])
	if member := r.Values["member"]; member != nil {
		members = append(members, member)
	}
	if len(members) == 0 { // a policy: a document that is not parsed here
		members = append(members, "?")
	}
	lines := make([]string, 0, len(members))
	for _, member := range members {
		lines = append(lines, short.Replace(strings.Join([]string{text(member), text(r.Values["role"]), strings.Join(target, " ")}, "  ")))
	}
	return lines
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}
