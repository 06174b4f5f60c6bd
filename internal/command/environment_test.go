package command_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/command"
)

func reader(vars map[string]string) *command.Environment {
	return command.NewEnvironment(func(name string) string { return vars[name] })
}

func TestDefaultsApplyToUnsetAndEmptyVariables(t *testing.T) {
	t.Parallel()
	r := reader(map[string]string{"EMPTY": ""})
	got := []any{
		r.String("EMPTY", "local"), r.Int("PORT", 8080, 1, 65535), r.URL("LISTEN_DATABASE_URL"),
		r.HostPort("VIDEO_SERVICE_ADDR", "localhost:8080"), r.Level("LOG_LEVEL", slog.LevelInfo),
	}
	want := []any{"local", 8080, "", "localhost:8080", slog.LevelInfo}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if err := r.Err(); err != nil {
		t.Errorf("Err() = %v, want nil", err)
	}
}

func TestValuesAreRead(t *testing.T) {
	t.Parallel()
	r := reader(map[string]string{
		"PROJECT": "p", "PORT": "9000", "DATABASE_URL": "postgresql://u:p@h/db",
		"ADDR": "video.internal:443", "LOG_LEVEL": "warn",
	})
	got := []any{
		r.Required("PROJECT"), r.Int("PORT", 8080, 1, 65535), r.RequiredURL("DATABASE_URL"),
		r.HostPort("ADDR", ""), r.Level("LOG_LEVEL", slog.LevelInfo), r.String("PROJECT", "local"),
	}
	want := []any{"p", 9000, "postgresql://u:p@h/db", "video.internal:443", slog.LevelWarn, "p"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if err := r.Err(); err != nil {
		t.Errorf("Err() = %v, want nil", err)
	}
}

func TestErrNamesEachBadVariableOnceAndShowsNoValue(t *testing.T) {
	t.Parallel()
	r := reader(map[string]string{
		"PORT": "70000", "WORKERS": "many", "LISTEN_DATABASE_URL": "postgres://u:s3cret@h:no-port/db",
		"OTHER_URL": "mysql://u:s3cret@h/db", "PUBSUB_ENDPOINT": "s3cret", "ADDR": "h:0", "LOG_LEVEL": "s3cret",
	})
	r.Int("PORT", 8080, 1, 65535)
	r.Int("WORKERS", 1, 1, 8)
	r.RequiredURL("DATABASE_URL")
	r.URL("LISTEN_DATABASE_URL")
	r.URL("OTHER_URL")
	r.HostPort("PUBSUB_ENDPOINT", "")
	r.HostPort("ADDR", "")
	r.Level("LOG_LEVEL", slog.LevelInfo)
	err := r.Err()
	if err == nil {
		t.Fatal("Err() = nil")
	}
	var names []string
	for line := range strings.Lines(err.Error()) {
		names = append(names, strings.Fields(line)[0])
	}
	want := []string{"PORT", "WORKERS", "DATABASE_URL", "LISTEN_DATABASE_URL", "OTHER_URL", "PUBSUB_ENDPOINT", "ADDR", "LOG_LEVEL"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("named variables (-want +got):\n%s", diff)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("Err() shows a value: %v", err)
	}
}

func TestProject(t *testing.T) {
	t.Parallel()
	for project, ok := range map[string]bool{
		"my-project": true, "123456789012": true, "example.com:my-project": true,
		"": false, " ": false, "my project": false, "my/project": false, "projects/my-project": false, "my-project\n": false, "プロジェクト": false,
	} {
		r := reader(map[string]string{"GOOGLE_CLOUD_PROJECT": project})
		got, err := r.Project("GOOGLE_CLOUD_PROJECT"), r.Err()
		if got != project || (err == nil) != ok || err != nil && !strings.HasPrefix(err.Error(), "GOOGLE_CLOUD_PROJECT ") {
			t.Errorf("%q: %q, %v", project, got, err)
		}
	}
}

// TestURLsThatClientsTake: url.Parse takes none of them.
func TestURLsThatClientsTake(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{"h1:5432,h2/db", "%2Fvar%2Frun%2Fpostgresql/db", "[::1]:5432,[::2]:5433/db"} {
		r := reader(map[string]string{"DATABASE_URL": "postgres://u:p@" + rest})
		r.RequiredURL("DATABASE_URL")
		if err := r.Err(); err != nil {
			t.Errorf("%s: %v", rest, err)
		}
	}
}

// TestURLsThatNoClientTakes: url.Parse takes them all.
func TestURLsThatNoClientTakes(t *testing.T) {
	t.Parallel()
	for _, part := range []string{":99999/db", "/db?sslmode=s3cret", "/db?pool_max_conns=0", "/db?connect_timeout=s3cret"} {
		r := reader(map[string]string{"LISTEN_DATABASE_URL": "postgres://u:s3cret@h" + part})
		r.URL("LISTEN_DATABASE_URL")
		if err := r.Err(); err == nil || !strings.HasPrefix(err.Error(), "LISTEN_DATABASE_URL has a part") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", part, err)
		}
	}
}

// TestAnAtSignOfAPasswordIsNoHost: clients end the password at the first @. The rest would be the host,
// which errors and warnings show. A path of a socket may have an @.
func TestAnAtSignOfAPasswordIsNoHost(t *testing.T) {
	t.Parallel()
	for rest, refused := range map[string]bool{
		"p@s3cret@h/db": true, "p@s3cret@h1,h2/db": true, "p@h1,s3cret@h2/db": true, "p@/db?host=s3cret@h": true,
		"p%40s3cret@h/db": false, "p@/db?host=/sockets/a@b": false,
	} {
		r := reader(map[string]string{"DATABASE_URL": "postgres://u:" + rest})
		r.URL("DATABASE_URL")
		err := r.Err()
		if (err != nil) != refused || err != nil && (!strings.Contains(err.Error(), "%40") || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v", rest, err)
		}
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		vars  map[string]string
		local bool
	}{
		"no emulator":          {map[string]string{}, false},
		"emulator":             {map[string]string{"PUBSUB_EMULATOR_HOST": "localhost:8085"}, true},
		"service on Cloud Run": {map[string]string{"PUBSUB_EMULATOR_HOST": "localhost:8085", "K_SERVICE": "video"}, false},
		"job on Cloud Run":     {map[string]string{"PUBSUB_EMULATOR_HOST": "localhost:8085", "CLOUD_RUN_JOB": "migrate"}, false},
		"worker pool":          {map[string]string{"PUBSUB_EMULATOR_HOST": "localhost:8085", "CLOUD_RUN_WORKER_POOL": "relay"}, false},
	} {
		if got := reader(tc.vars).Local(); got != tc.local {
			t.Errorf("%s: local is %t", name, got)
		}
	}
}
