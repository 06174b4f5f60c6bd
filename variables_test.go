package lockstep_test

import (
	"testing"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/local/variables"
	reader "example.com/lockstep/services/catalog"
	owner "example.com/lockstep/services/video"
)

// TestTestsHaveNoVariableOfAService: with one of them from a shell, the services of a test would connect to servers of
// the user.
func TestTestsHaveNoVariableOfAService(t *testing.T) {
	t.Parallel()
	r := command.NewEnvironment(func(name string) string {
		if !variables.Forgets(name) {
			t.Errorf("package variables lacks %s", name)
		}
		return ""
	})
	new(owner.Config).ReadEnvironment(r)
	new(reader.Config).ReadEnvironment(r)
}
