package deploy_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest/pairtest"
)

var holdersBlock = regexp.MustCompile("(?s)<!-- tested: deploy/vacuum_test.go holders -->\n```sh\n(.*?)```")

// The runbook's statements name the sessions that keep vacuum from old rows: one with a snapshot, and one that has written and is idle.
// The second has no snapshot while it is idle.
func TestTheHoldersOfVacuumAreNamed(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("not installed: psql")
	}
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	block := holdersBlock.FindStringSubmatch(string(text))
	if block == nil {
		t.Fatal("the runbook has no such block")
	}
	admin := pairtest.New(t).Admin
	for name, begin := range map[string]string{
		"a snapshot":          `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`,
		"written, and idle":   `BEGIN; UPDATE video.outbox_retention SET next_page = next_page`,
		"an id, and no write": `BEGIN; SELECT pg_current_xact_id()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := pgx.Connect(t.Context(), admin)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			if _, err := conn.Exec(t.Context(), begin); err != nil {
				t.Fatal(err)
			}
			c := conn.Config()
			// The server is shared by tests whose transactions are older or younger.
			cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\n"+strings.Replace(block[1], " LIMIT 5", "", 1))
			cmd.Env = append(os.Environ(), "PGHOST="+c.Host, "PGPORT="+strconv.Itoa(int(c.Port)),
				"PGUSER="+c.User, "PGPASSWORD="+c.Password, "PGDATABASE="+c.Database)
			out, err := cmd.CombinedOutput()
			pid := strconv.Itoa(int(conn.PgConn().PID()))
			if err != nil || !regexp.MustCompile(`(?m)^\s*`+pid+` \|`).Match(out) {
				t.Errorf("the session %s is not named: %v\n%s", pid, err, out)
			}
		})
	}
}
