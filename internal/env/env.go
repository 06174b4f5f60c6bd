// Package env reads a process's settings from its environment, once, and reports all
// their faults in one error.
//
// A [Reader] collects: call its methods for every variable, then ask Err before using
// their results. No error ever shows a variable's value, which may hold a password.
package env

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
)

// Reader reads variables and remembers which were bad.
type Reader struct {
	getenv func(string) string
	errs   []error
}

// New returns a Reader over getenv, usually os.Getenv. An empty variable counts
// as unset.
func New(getenv func(string) string) *Reader { return &Reader{getenv: getenv} }

// Err returns nil or one error with a line for each bad variable.
func (r *Reader) Err() error { return errors.Join(r.errs...) }

func (r *Reader) badf(name, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s "+format, append([]any{name}, args...)...))
}

// String returns the variable, or def when it is unset.
func (r *Reader) String(name, def string) string {
	if v := r.getenv(name); v != "" {
		return v
	}
	return def
}

// Required returns the variable, which must be set.
func (r *Reader) Required(name string) string {
	v := r.getenv(name)
	if v == "" {
		r.badf(name, "is required")
	}
	return v
}

// Local reports whether the process runs on a developer's machine: against an emulator,
// and in none of Cloud Run's kinds of container.
func (r *Reader) Local() bool {
	for _, name := range []string{"K_SERVICE", "CLOUD_RUN_JOB", "CLOUD_RUN_WORKER_POOL"} {
		if r.getenv(name) != "" {
			return false
		}
	}
	return r.getenv("PUBSUB_EMULATOR_HOST") != ""
}

// Int returns the variable, a whole number from least to most, or def when it
// is unset.
func (r *Reader) Int(name string, def, least, most int) int {
	v := r.getenv(name)
	if v == "" {
		return def
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		r.badf(name, "must be a whole number from %d to %d", least, most)
	}
	return n
}

// URL returns the variable, a Postgres connection URL, or "" when it is unset.
func (r *Reader) URL(name string) string {
	v := r.getenv(name)
	if v == "" {
		return ""
	}
	// The parse error is dropped: it quotes the URL with its password.
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		r.badf(name, "must be a URL like postgres://user:password@host:5432/database")
	}
	return v
}

// RequiredURL is URL for a variable that must be set.
func (r *Reader) RequiredURL(name string) string {
	if r.Required(name) == "" {
		return ""
	}
	return r.URL(name)
}

// HostPort returns the variable, an address like "localhost:8080", or def when
// it is unset.
func (r *Reader) HostPort(name, def string) string {
	v := r.getenv(name)
	if v == "" {
		return def
	}
	_, port, err := net.SplitHostPort(v)
	if n, convErr := strconv.ParseUint(port, 10, 16); err != nil || convErr != nil || n == 0 {
		r.badf(name, "must be host:port, such as localhost:8080")
	}
	return v
}

// Level returns the variable, a slog level such as "debug" or "WARN", or def
// when it is unset.
func (r *Reader) Level(name string, def slog.Level) slog.Level {
	v := r.getenv(name)
	if v == "" {
		return def
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(v)); err != nil {
		r.badf(name, "must be debug, info, warn or error")
	}
	return level
}
