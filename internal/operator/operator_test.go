package operator

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/porttest"
)

func TestHelpNeedsNoEnvironment(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"video", "catalog"} {
		s := (&bench{}).service(name)
		for _, tool := range s.Tools {
			helps(t, s, tool.Name)
		}
		var stdout bytes.Buffer
		s.Run(t.Context(), []string{"help"}, nil, &stdout, &stdout)
		for _, tool := range s.Tools {
			if !strings.Contains(stdout.String(), "\n  "+tool.Name+" ") {
				t.Errorf("the service's help does not list %s:\n%s", tool.Name, stdout.String())
			}
		}
	}
}

// helps expects that each way to ask prints the usage of the tool.
func helps(t *testing.T, s command.Service, tool string) {
	t.Helper()
	subcommand := map[bool]string{true: "status", false: "show"}[tool == "rebuild"]
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}, {subcommand, "--help"}, {subcommand, "-h"}} {
		var stdout, stderr bytes.Buffer
		code := s.Run(t.Context(), append([]string{tool}, args...), func(string) string { return "" }, &stdout, &stderr)
		if code != 0 || stderr.Len() > 0 || !strings.HasPrefix(stdout.String(), tool+" ") || !strings.Contains(stdout.String(), "\nusage: "+tool+" ") {
			t.Errorf("%s %q: code %d, stdout %.40q, stderr %q", tool, args, code, stdout.String(), stderr.String())
		}
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	for line, says := range map[string]string{
		"outbox":                                "drain, list, purge, retry, show, skip, status",
		"outbox dance":                          `unknown command "dance"`,
		"outbox status now":                     `"now"`,
		"outbox status --fast":                  "-fast",
		"outbox list --limit 0":                 "--limit 0",
		"outbox list --limit 1001":              "--limit 1001",
		"outbox show":                           "missing",
		"outbox show 42":                        `event id "42"`,
		"outbox skip " + id + " " + id:          "unexpected argument",
		"outbox retry --why y":                  "--all",
		"outbox retry --why y --all " + id:      "--all",
		"outbox retry --why y x":                `event id "x"`,
		"outbox retry --why y --reason x " + id: "--reason",
		"outbox purge --older-than -1h":         "--older-than",
		"outbox purge --older-than yesterday":   "older-than",
		"outbox drain --timeout 0s":             "--timeout",
		"epoch":                                 "bump, show",
		"epoch bump 7":                          `unexpected argument "7"`,
		"epoch show --yes":                      "-yes",
		"dlq redrive":                           "--all",
		"dlq discard --all " + id:               "--all",
		"dlq redrive --aggregate a " + id:       "--aggregate",
		"dlq list " + id:                        "unexpected argument",
		"dlq show":                              "missing",
	} {
		var stdout, stderr bytes.Buffer
		name := map[bool]string{true: "catalog", false: "video"}[strings.HasPrefix(line, "dlq")]
		code := (&bench{}).service(name).Run(t.Context(), strings.Fields(line), (&bench{pg: &pairtest.DB{}}).getenv(""), &stdout, &stderr)
		if code != 2 || stdout.Len() > 0 || !strings.Contains(stderr.String(), says) {
			t.Errorf("%s: code %d, stdout %q, stderr %q", line, code, stdout.String(), stderr.String())
		}
	}
}

func TestTheEnvironmentIsNamed(t *testing.T) {
	t.Parallel()
	for line, names := range map[string]string{
		"outbox status":     "DATABASE_URL",
		"outbox drain":      "DATABASE_URL GOOGLE_CLOUD_PROJECT",
		"dlq list":          "DATABASE_URL GOOGLE_CLOUD_PROJECT",
		"dlq redrive --all": "DATABASE_URL GOOGLE_CLOUD_PROJECT OWNER_ADDR",
	} {
		var stdout, stderr bytes.Buffer
		name := map[bool]string{true: "catalog", false: "video"}[strings.HasPrefix(line, "dlq")]
		code := (&bench{}).service(name).Run(t.Context(), strings.Fields(line), func(string) string { return "" }, &stdout, &stderr)
		for variable := range strings.FieldsSeq(names) {
			if code != 1 || stdout.Len() > 0 || !strings.Contains(stderr.String(), variable+" is required") {
				t.Errorf("%s: code %d, stdout %q, stderr %q, want %s named", line, code, stdout.String(), stderr.String(), variable)
			}
		}
	}
}

// The client library reads the address of the emulator, and does not name the variable in its errors.
func TestABadAddressOfTheEmulatorIsNamed(t *testing.T) {
	t.Parallel()
	b := &bench{pg: &pairtest.DB{CatalogURL: "postgres://nobody@127.0.0.1:1/none"}, project: "p"}
	environment := func(name string) string {
		if name == "PUBSUB_EMULATOR_HOST" {
			return "http://localhost:8085"
		}
		return b.getenv("catalog")(name)
	}
	var stdout, stderr bytes.Buffer
	code := b.service("catalog").Run(t.Context(), []string{"dlq", "list"}, environment, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "PUBSUB_EMULATOR_HOST") {
		t.Errorf("code %d: %s", code, stderr.String())
	}
}

func TestDatabaseOfTheOtherServiceIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if stdout, _ := b.run(t, 0, "dlq discard --all"); !strings.Contains(stdout, "no dead letters") {
		t.Errorf("discard of none: %s", stdout)
	}
	b.pg.VideoURL, b.pg.CatalogURL = b.pg.CatalogURL, b.pg.VideoURL
	for _, line := range []string{"outbox status", "outbox list", "outbox retry --all --why y", "dlq list", "dlq discard --all"} {
		if _, stderr := b.run(t, 1, line); !strings.Contains(stderr, "is DATABASE_URL of the service's own role") {
			t.Errorf("%s: %s", line, stderr)
		}
	}
}

func TestControlCharactersAreNotPrinted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "red\x1b[31m\u009b", 1)
	b.park(t, ids[0], "bell\a")
	for _, line := range []string{"status", "list", "show " + ids[0].String()} {
		stdout, _ := b.run(t, 0, "outbox "+line)
		if !strings.Contains(stdout, "red") || strings.ContainsAny(stdout, "\x1b\u009b\a") {
			t.Errorf("%s prints %q", line, stdout)
		}
	}
	var list struct{ Events []outboxEvent }
	b.json(t, 0, "outbox list", &list)
	if len(list.Events) != 1 || list.Events[0].AggregateID != "red\x1b[31m\u009b" {
		t.Errorf("programs get %+v", list)
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	if got := oneLine(" a\n\tb "); got != "a b" {
		t.Errorf("%q", got)
	}
	if got := oneLine(strings.Repeat("é", 101)); got != strings.Repeat("é", 100)+"…" {
		t.Errorf("%q", got)
	}
	if got := stamp(time.Unix(0, 0)); got != "1970-01-01T00:00:00Z" {
		t.Errorf("%q", got)
	}
}

// inJob runs a command line as a job of Cloud Run does: the user is the image's, and no
// person.
func (b *bench) inJob(t *testing.T, database, line string) (code int, stderr string) {
	t.Helper()
	var errOut bytes.Buffer
	code = b.service("video").Run(t.Context(), strings.Fields(line), func(name string) string {
		return map[string]string{"DATABASE_URL": database, "CLOUD_RUN_EXECUTION": "video-outbox-x7k2p", "USER": "nonroot"}[name]
	}, io.Discard, &errOut)
	return code, errOut.String()
}

func TestAJobSaysWhoActs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 2)
	b.park(t, ids[0], "nonsense")
	for _, line := range []string{"outbox retry --all", "outbox skip --yes --why test " + ids[0].String(), "outbox purge --yes --why test"} {
		if code, says := b.inJob(t, b.pg.VideoURL, line); code != 2 || !strings.Contains(says, "--by") {
			t.Errorf("%s: code %d, stderr %q, want --by asked for", line, code, says)
		}
	}
	for _, line := range []string{"outbox list", "outbox skip " + ids[0].String(), "outbox purge"} {
		if code, says := b.inJob(t, b.pg.VideoURL, line); code != 0 {
			t.Errorf("%s changes nothing: code %d, stderr %q", line, code, says)
		}
	}
	if code, says := b.inJob(t, b.pg.VideoURL, "outbox retry --all --by ada"); code != 2 || !strings.Contains(says, "--why") {
		t.Errorf("code %d, stderr %q, want --why asked for", code, says)
	}
	if code, says := b.inJob(t, b.pg.VideoURL, "outbox retry --all --by ada --why fixed"); code != 0 {
		t.Errorf("code %d, stderr %q", code, says)
	}
	var by string
	if err := b.video.QueryRow(t.Context(), `SELECT actor FROM operator_actions`).Scan(&by); err != nil || by != "ada in video-outbox-x7k2p" {
		t.Errorf("kept: %q, %v, want the person and the execution", by, err)
	}
}

func TestSudoHasAPerson(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 1)
	b.park(t, ids[0], "nonsense")
	var out bytes.Buffer
	code := b.service("video").Run(t.Context(), []string{"outbox", "retry", "--all", "--why", "fixed"}, func(name string) string {
		return map[string]string{"DATABASE_URL": b.pg.VideoURL, "USER": "root", "SUDO_USER": "ada"}[name]
	}, &out, &out)
	var by string
	if err := b.video.QueryRow(t.Context(), `SELECT actor FROM operator_actions`).Scan(&by); code != 0 || err != nil || by != "ada" {
		t.Errorf("code %d, %s, kept: %q, %v", code, out.String(), by, err)
	}
}

// TestToolsAwaitTheNetwork shows that a tool connects again and again until its context
// ends, instead of giving up at the first refusal.
func TestToolsAwaitTheNetwork(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stderr := &writer{written: func(text string) {
		if strings.Contains(text, "waiting for the database") {
			stop()
		}
	}}
	code := new(bench).service("video").Run(ctx, []string{"outbox", "status"}, func(name string) string {
		return map[string]string{"DATABASE_URL": "postgres://video_service@" + porttest.Addr(t) + "/video"}[name]
	}, io.Discard, stderr)
	if code != 1 || ctx.Err() == nil {
		t.Errorf("code %d, stopped: %v; want it to wait", code, ctx.Err())
	}
}

type writer struct{ written func(string) }

func (w *writer) Write(text []byte) (int, error) {
	w.written(string(text))
	return len(text), nil
}
