package command

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// projectCharacters may be in the id of a project. An old project has its domain in front of its
// id, with a colon behind the domain.
const projectCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:"

// Environment reads variables and remembers the faults that it finds in them. Read every variable
// first. Then call Err, before you use a value. No error shows the value of a variable, because the
// value may hold a password.
type Environment struct {
	getenv func(string) string
	errs   []error
}

// NewEnvironment returns an environment over getenv, usually os.Getenv. An empty variable counts
// as unset.
func NewEnvironment(getenv func(string) string) *Environment { return &Environment{getenv: getenv} }

// Err returns nil or one error with a line for each bad variable.
func (e *Environment) Err() error { return errors.Join(e.errs...) }

func (e *Environment) badf(name, format string, args ...any) {
	e.errs = append(e.errs, fmt.Errorf("%s "+format, append([]any{name}, args...)...))
}

// Refuse records a fault that the caller has found in the variable. fault continues a sentence that
// begins with the variable's name. It must not show the variable's value.
func (e *Environment) Refuse(name, fault string) { e.badf(name, "%s", fault) }

// String returns the variable, or def when it is unset.
func (e *Environment) String(name, def string) string {
	if v := e.getenv(name); v != "" {
		return v
	}
	return def
}

// Required returns the variable, which must be set.
func (e *Environment) Required(name string) string {
	v := e.getenv(name)
	if v == "" {
		e.badf(name, "is required")
	}
	return v
}

// Project returns the variable, the id or the number of a Google Cloud project, which must be set.
// An emulator takes other names, too, but a name that no resource can have is refused everywhere.
func (e *Environment) Project(name string) string {
	v := e.Required(name)
	if strings.ContainsFunc(v, func(c rune) bool { return !strings.ContainsRune(projectCharacters, c) }) {
		e.badf(name, "must be the id of a project, such as my-project")
	}
	return v
}

// Local reports whether the process runs on a developer's machine. It returns true if the process
// uses an emulator and runs in none of Cloud Run's kinds of container.
func (e *Environment) Local() bool {
	for _, name := range []string{"K_SERVICE", "CLOUD_RUN_JOB", "CLOUD_RUN_WORKER_POOL"} {
		if e.getenv(name) != "" {
			return false
		}
	}
	return e.getenv("PUBSUB_EMULATOR_HOST") != ""
}

// Int returns the variable, a whole number from least to most, or def when it
// is unset.
func (e *Environment) Int(name string, def, least, most int) int {
	v := e.getenv(name)
	if v == "" {
		return def
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		e.badf(name, "must be a whole number from %d to %d", least, most)
	}
	return n
}

// URL returns the variable, a Postgres connection URL, or "" when it is unset.
func (e *Environment) URL(name string) string {
	v := e.getenv(name)
	if v == "" {
		return ""
	}
	if !strings.HasPrefix(v, "postgres://") && !strings.HasPrefix(v, "postgresql://") {
		e.badf(name, "must be a URL like postgres://user:password@host:5432/database")
		return v
	}
	// The parse error is dropped, because it may quote the URL with its password.
	switch config, err := pgxpool.ParseConfig(v); {
	case err != nil:
		e.badf(name, "has a part that Postgres clients refuse: check the port, sslmode and the pool's settings")
	case slices.ContainsFunc(hosts(config.ConnConfig), func(host string) bool { return strings.Contains(host, "@") && host[0] != '/' }):
		e.badf(name, "has a host with an @: write each @ of the password as %%40")
	}
	return v
}

// hosts returns the names of the hosts, and the paths of the sockets, that a client would connect to.
func hosts(config *pgx.ConnConfig) []string {
	names := []string{config.Host}
	for _, fallback := range config.Fallbacks {
		names = append(names, fallback.Host)
	}
	return names
}

// RequiredURL is URL, but reports a fault if the variable is not set.
func (e *Environment) RequiredURL(name string) string {
	if e.Required(name) == "" {
		return ""
	}
	return e.URL(name)
}

// HostPort returns the variable, an address like "localhost:8080", or def when
// it is unset.
func (e *Environment) HostPort(name, def string) string {
	v := e.getenv(name)
	if v == "" {
		return def
	}
	_, port, err := net.SplitHostPort(v)
	if n, convErr := strconv.ParseUint(port, 10, 16); err != nil || convErr != nil || n == 0 {
		e.badf(name, "must be host:port, such as localhost:8080")
	}
	return v
}

// Level returns the variable, a slog level such as "debug" or "WARN", or def
// when it is unset.
func (e *Environment) Level(name string, def slog.Level) slog.Level {
	v := e.getenv(name)
	if v == "" {
		return def
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(v)); err != nil {
		e.badf(name, "must be debug, info, warn or error")
	}
	return level
}
