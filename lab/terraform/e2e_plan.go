package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// variables has the values of a module's variables, by name. A version of the module ignores the
// values of variables that it does not declare.
type variables map[string]any

// variablesFile and planFile are files in the folder of the module's copy.
const (
	variablesFile = "e2e.tfvars.json"
	planFile      = "e2e.plan"
)

func (m *module) set(v variables) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.path(variablesFile), text, 0o600)
}

// apply applies the module to the project. If there are targets, it applies only the targets and
// what they need.
func (m *module) apply(ctx context.Context, v variables, targets ...string) error {
	args := []string{"apply", "-auto-approve"}
	for _, target := range targets {
		args = append(args, "-target="+target)
	}
	return m.change(ctx, v, args)
}

func (m *module) destroy(ctx context.Context, v variables) error {
	return m.change(ctx, v, []string{"destroy", "-auto-approve"})
}

func (m *module) change(ctx context.Context, v variables, args []string) error {
	if err := m.set(v); err != nil {
		return err
	}
	_, err := m.terraform(ctx, append(args, "-input=false", "-var-file="+variablesFile)...)
	return err
}

// A change is the change that a plan makes to one resource or output.
type change struct {
	Address string `json:"address"`
	Type    string `json:"type"`
	Change  steps  `json:"change"`
}

// steps has the actions of a change: create, update or delete, or two of them for a replacement.
type steps struct {
	Actions []string `json:"actions"`
}

func (c change) String() string { return strings.Join(c.Change.Actions, "+") + " " + c.Address }

// data are the types of resources whose content another apply cannot restore.
var data = []string{
	"google_pubsub_topic", "google_pubsub_subscription", "google_pubsub_schema", "google_secret_manager_secret",
	"google_sql_database_instance", "google_sql_database", "google_artifact_registry_repository",
}

// losesData reports whether the change deletes a resource with data. A replacement also deletes it.
func (c change) losesData() bool {
	return slices.Contains(data, c.Type) && slices.Contains(c.Change.Actions, "delete")
}

// plan returns the changes that an apply would make. There are none if the project is as the module
// describes it.
func (m *module) plan(ctx context.Context, v variables) ([]change, error) {
	if err := m.set(v); err != nil {
		return nil, err
	}
	if _, err := m.terraform(ctx, "plan", "-input=false", "-out="+planFile, "-var-file="+variablesFile); err != nil {
		return nil, err
	}
	output, err := m.terraform(ctx, "show", "-json", planFile)
	if err != nil {
		return nil, err
	}
	var planned struct {
		Resources []change         `json:"resource_changes"`
		Outputs   map[string]steps `json:"output_changes"`
	}
	if err := json.Unmarshal(output, &planned); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	changes := planned.Resources
	for name, output := range planned.Outputs {
		changes = append(changes, change{Address: "output." + name, Change: output})
	}
	return slices.DeleteFunc(changes, func(c change) bool { return slices.Equal(c.Change.Actions, []string{"no-op"}) }), nil
}

// expectEmptyPlan returns an error if a plan has changes. Directly after an apply, a remaining
// change would be made again at each deployment.
func (m *module) expectEmptyPlan(ctx context.Context, v variables) error {
	changes, err := m.plan(ctx, v)
	if err == nil && len(changes) > 0 {
		err = fmt.Errorf("a second plan is not empty: %v", changes)
	}
	return err
}

// keepsData makes a plan, and returns an error if the plan loses data.
func (m *module) keepsData(ctx context.Context, v variables) (summary string, err error) {
	changes, err := m.plan(ctx, v)
	if err != nil {
		return "", err
	}
	var lost []error
	for _, c := range changes {
		if c.losesData() {
			lost = append(lost, errors.New("data would be lost: "+c.String()))
		}
	}
	return fmt.Sprintf("%d changes, none of which loses data", len(changes)), errors.Join(lost...)
}
