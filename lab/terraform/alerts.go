package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"example.com/lockstep/internal/monitoring"
)

// runbook is the path of the runbook from the module. The links of the module's alerts have the
// same path.
const runbook = "../../docs/runbook.md"

// alertsAgree compares the module's alerts on metrics with the table in internal/monitoring from
// which they are generated. It also checks that each alert has an entry in the runbook.
func alertsAgree(_ context.Context, m *module) (string, error) {
	content, err := os.ReadFile(m.path("alerts.json"))
	if err != nil {
		return "", err
	}
	var given map[string]struct {
		Expr    string `json:"expr"`
		Anchor  string `json:"anchor"`
		Instead string `json:"instead"`
	}
	if err := json.Unmarshal(content, &given); err != nil {
		return "", fmt.Errorf("alerts.json: %w", err)
	}
	entries, err := os.ReadFile(m.path(runbook))
	if err != nil {
		return "", err
	}
	var wrong []error
	policies := 0
	for _, a := range monitoring.Alerts {
		if a.NamedInstances { // an instance on Cloud Run keeps no name, so the module has no such alert
			continue
		}
		policies++
		if got := given[a.Name]; got.Expr != a.Expr || got.Instead != a.Instead || got.Anchor != a.Anchor() {
			wrong = append(wrong, fmt.Errorf("alerts.json does not have %s as internal/monitoring has it; `make generate` writes it", a.Name))
		}
		if !strings.Contains(string(entries), "\n## "+a.Entry+"\n") {
			wrong = append(wrong, fmt.Errorf("docs/runbook.md has no entry %q for %s", a.Entry, a.Name))
		}
	}
	if len(given) > policies {
		wrong = append(wrong, errors.New("alerts.json has an alert that internal/monitoring does not have for Cloud Run"))
	}
	return fmt.Sprintf("%d, each with its entry of the runbook", len(given)), errors.Join(wrong...)
}
