package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"example.com/lockstep/internal/monitoring"
)

// boardsAgree compares the queries of the module's boards with the table in internal/monitoring
// from which they are generated.
func boardsAgree(_ context.Context, m *module) (string, error) {
	content, err := os.ReadFile(m.path("boards.json"))
	if err != nil {
		return "", err
	}
	var given map[string]any
	if err := json.Unmarshal(content, &given); err != nil {
		return "", fmt.Errorf("boards.json: %w", err)
	}
	var wrong []error
	panels := 0
	for _, b := range monitoring.Boards {
		var wanted []string
		for _, row := range b.Rows {
			for _, p := range row.Panels {
				panels++
				for _, q := range p.Queries {
					wanted = append(wanted, q.Expr)
				}
			}
		}
		if !slices.Equal(queriesOf(given[b.ID]), wanted) {
			wrong = append(wrong, fmt.Errorf("boards.json does not have the queries of %s as internal/monitoring has them; "+
				"`make generate` writes it", b.ID))
		}
	}
	if len(given) > len(monitoring.Boards) {
		wrong = append(wrong, errors.New("boards.json has a board that internal/monitoring does not have"))
	}
	return fmt.Sprintf("%d, with %d panels", len(given), panels), errors.Join(wrong...)
}

// queriesOf returns the values of all fields prometheusQuery. The values in a list keep their
// order.
func queriesOf(value any) (found []string) {
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			found = append(found, queriesOf(v)...)
		}
	case map[string]any:
		for name, v := range value {
			if query, ok := v.(string); ok && name == "prometheusQuery" {
				found = append(found, query)
			} else {
				found = append(found, queriesOf(v)...)
			}
		}
	}
	return found
}
