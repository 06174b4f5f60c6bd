package operator

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/command"
)

func TestEraseWrongUsage(t *testing.T) {
	t.Parallel()
	user := "--user " + uuid.NewString()
	for line, says := range map[string]string{
		"":                            `--user ""`,
		"--user ada":                  `--user "ada"`,
		"--user " + uuid.Nil.String(): "--user",
		user + " all":                 `unexpected argument "all"`,
		user + " --rate -1":           "-rate", // which a read model does not have
		user + " --wait -1s":          "--wait",
		user + " --yes":               "--why",
	} {
		var out bytes.Buffer
		for _, tool := range []command.Tool{named(Owner{}.Tools(), "erase"), named(ReadModel{}.Tools(), "erase")} {
			err := tool.Run(t.Context(), command.Call{
				Args: strings.Fields(line), Getenv: func(name string) string { return map[string]string{"USER": "ada"}[name] }, Out: &out, Err: &out,
			})
			if err == nil || !strings.Contains(err.Error(), says) || out.Len() > 0 {
				t.Errorf("%q: %v, want %q; printed %q", line, err, says, out.String())
			}
		}
	}
}
