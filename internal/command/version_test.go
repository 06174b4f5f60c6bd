package command

import (
	"net"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"example.com/lockstep/internal/porttest"
)

func TestVersionNeedsNoEnvironment(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}, {"-version"}} {
		code, stdout, stderr := run(t, nil, nil, args...)
		if want := "video " + Version + " (commit " + commit() + ")\n"; code != 0 || stdout != want || stderr != "" {
			t.Errorf("%q: code %d, stdout %q, stderr %q, want %q", args, code, stdout, stderr, want)
		}
	}
	for _, args := range [][]string{{"version", "1"}, {"--version", "1"}, {"--version=1"}, {"serve", "--version"}} {
		if code, stdout, stderr := run(t, nil, nil, args...); code != 2 || stdout != "" || stderr == "" {
			t.Errorf("%q: code %d, stdout %q, stderr %q, want wrong usage", args, code, stdout, stderr)
		}
	}
}

// TestOneVersion holds the version against the other files that name it.
func TestOneVersion(t *testing.T) {
	t.Parallel()
	for file, names := range map[string]string{
		"../../Dockerfile":   `image\.version="(\S+)"`,
		"../../CHANGELOG.md": `(?m)^## \[(v\S+)\] - `, // the newest comes first
		"../../README.md":    "`(v[0-9]+\\.[0-9]+\\.[0-9]+)`",
		"../../SECURITY.md":  "`(v[0-9]+\\.[0-9]+\\.[0-9]+)`",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(names).FindSubmatch(text); len(found) != 2 || string(found[1]) != Version {
			t.Errorf("%s names the version %q, want %s", file, found, Version)
		}
	}
}

func TestTheCommitThatGoHasRecorded(t *testing.T) {
	t.Parallel()
	for want, settings := range map[string][]debug.BuildSetting{
		"unknown":      {{Key: "-trimpath", Value: "true"}},
		"abc":          {{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}},
		"abc-modified": {{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	} {
		if got := recorded(settings); got != want {
			t.Errorf("recorded(%v) = %s, want %s", settings, got, want)
		}
	}
}

// It sets the variable of the whole process, so it must not run in parallel with others.
func TestTheCommitThatTheDockerfileSets(t *testing.T) {
	dockerfile, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	// The linker says nothing about a variable that does not exist.
	if flag := "-X " + reflect.TypeFor[Service]().PkgPath() + ".revision=${REVISION}"; !strings.Contains(string(dockerfile), flag) {
		t.Errorf("the Dockerfile does not say %s", flag)
	}
	defer func(before string) { revision = before }(revision)
	revision = "0123abc"
	code, stdout, _ := run(t, nil, nil, "version")
	if want := "video " + Version + " (commit 0123abc)\n"; code != 0 || stdout != want {
		t.Errorf("code %d, stdout %q, want %q", code, stdout, want)
	}
	code, stdout, stderr := run(t, func(_, _ net.Listener) error { return nil }, map[string]string{"COLOR": "red", "PORT": strconv.Itoa(porttest.Port(t))})
	for _, want := range []string{`"message":"starting"`, `"version":"` + Version + `"`, `"revision":"0123abc"`} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("code %d, stdout %q, stderr %q, want %s", code, stdout, stderr, want)
		}
	}
}
