package deploy_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/migrations"
)

// replicationBlock finds the commands of the runbook that this file runs.
var replicationBlock = regexp.MustCompile("(?s)<!-- tested: deploy/replication_test.go (\\w+) -->\n *```sh\n(.*?)```")

// TestLogicalReplicationToAnotherServer types the runbook's commands. The new database gets the rows of the tables with tenants, too:
// from Postgres 16 on their owner writes them, and row-level security binds it. Afterwards it binds the owner again.
func TestLogicalReplicationToAnotherServer(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("not installed: psql")
	}
	r := newReplication(t)
	execute(t, r.old, `
		INSERT INTO video.videos (video_id, uploader_id, title, version, created_at, updated_at)
		SELECT gen_random_uuid(), gen_random_uuid(), n::text, 1, now(), now() FROM generate_series(1, 100) n`, `
		INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), 'video', video_id::text, 'VideoCreated', 1, '' FROM video.videos`, `
		INSERT INTO catalog.video_projection (video_id, title, version, updated_at) SELECT video_id, title, 1, now() FROM video.videos`, action)
	r.types(t, "begin")
	r.await(t, "0", func() string {
		return r.read(t, r.new, `SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'`)
	})
	execute(t, r.old, `UPDATE video.videos SET version = 2`, `DELETE FROM catalog.video_projection WHERE title > '5'`, action)
	r.await(t, "t", func() string { return strings.TrimSpace(r.types(t, "behind")) })
	r.types(t, "end")
	for _, s := range both {
		if err := migrations.Up(t.Context(), r.new, s, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		if old, moved := state(t, r.old, string(s)), state(t, r.new, string(s)); old != moved {
			t.Errorf("%s on the old server:\n%s\non the new server:\n%s", s, old, moved)
		}
	}
	const bound = `SELECT string_agg(oid::regclass::text, ' ' ORDER BY oid::regclass::text) FROM pg_class WHERE relforcerowsecurity`
	if old, moved := r.read(t, r.old, bound), r.read(t, r.new, bound); old != moved {
		t.Errorf("row-level security binds the owner of %s on the old server, and of %s on the new one", old, moved)
	}
	execute(t, r.new, action)
}

const action = `INSERT INTO video.operator_actions (action, actor, why) VALUES ('skip', 'ada', 'test')`

// replication has two servers with the schemas of both services, and the runbook's commands. The new one has no rows.
type replication struct {
	old, new string // connect as administrators
	commands map[string]string
}

func newReplication(t *testing.T) replication {
	t.Helper()
	r := replication{old: ownServer(t), new: ownServer(t), commands: map[string]string{}}
	// Not pg_dump, which has to be as new as the server.
	const tables = `SELECT string_agg(oid::regclass::text, ', ') FROM pg_class
		WHERE relkind = 'r' AND relnamespace IN ('video'::regnamespace, 'catalog'::regnamespace)`
	execute(t, r.new, `TRUNCATE `+r.read(t, r.new, tables)+` RESTART IDENTITY`)
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range replicationBlock.FindAllStringSubmatch(string(text), -1) {
		r.commands[m[1]] = m[2]
	}
	return r
}

// ownServer starts a server whose write-ahead log has what logical replication needs, and returns an administrator's URL.
func ownServer(t *testing.T) string {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Options{Log: os.Stderr, InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	execute(t, server.URL(), `ALTER SYSTEM SET wal_level = logical`)
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := server.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	roles(t, server.URL())
	return server.URL()
}

// types runs a block of the runbook, and returns its output.
func (r replication) types(t *testing.T, block string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\n"+r.commands[block])
	cmd.Env = append(os.Environ(), "OLD="+r.old, "NEW="+r.new)
	var complaints strings.Builder // a shell may warn of a locale that it does not have
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil || r.commands[block] == "" {
		t.Fatalf("%s: %v\n%s%s", block, err, out, &complaints)
	}
	return string(out)
}

func (replication) read(t *testing.T, url, query string) (found string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), query).Scan(&found); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return found
}

func (replication) await(t *testing.T, want string, read func() string) {
	t.Helper()
	got, end := "", time.After(time.Minute)
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-end:
			t.Fatalf("%q after a minute, want %q", got, want)
		case <-tick.C:
			if got = read(); got == want {
				return
			}
		}
	}
}
