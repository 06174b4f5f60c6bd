// Package variables keeps the variables of a shell from tests and benchmarks. A developer's shell may name
// the developer's own database, broker, issuer or collector of traces. A test must not connect to these, and its
// result must not depend on the shell.
package variables

import (
	"os"
	"slices"
	"strings"
	"sync"
)

// names are the variables of the services that share no beginning with others.
var names = []string{"ADMIN_PORT", "DATABASE_URL", "EVERYBODY_MAY_WRITE", "LISTEN_DATABASE_URL", "LOG_LEVEL", "PORT", "VIDEO_SERVICE_ADDR"}

// beginnings are those of the other variables of the services, of Cloud Run, of Docker Compose, and of Google's and
// OpenTelemetry's libraries.
var beginnings = []string{"AUTH_", "CLOUD_RUN_", "COMPOSE_", "GCE_METADATA_", "GOOGLE_", "K_", "OTEL_", "PUBSUB_"}

var once sync.Once

// Forget unsets the variables of this process, and so of its children, for which [Forgets] returns true. Only the
// first call does so, so that a TestMain can set a variable after its call, and then call pgtest.Main.
func Forget() {
	once.Do(func() {
		for _, variable := range os.Environ() {
			if name, _, _ := strings.Cut(variable, "="); Forgets(name) {
				_ = os.Unsetenv(name) // fails on an empty name only
			}
		}
	})
}

// Forgets reports whether a test must not have the variable. The variables of Postgres's clients, such as PGPASSWORD,
// stay if TEST_DATABASE_URL names the server, because they may complete that URL.
func Forgets(name string) bool {
	begins := func(with string) bool { return strings.HasPrefix(name, with) }
	return slices.Contains(names, name) || slices.ContainsFunc(beginnings, begins) ||
		begins("PG") && os.Getenv("TEST_DATABASE_URL") == ""
}
