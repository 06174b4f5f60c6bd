package command

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
)

// Version is the release that this source is, or will be. CHANGELOG.md and the labels
// of the images name the same one.
const Version = "v0.1.0"

// revision is the commit of the binary's source. The Dockerfile sets it, because the
// files that it builds from have no history; any other build leaves it empty.
var revision string

// version prints the release and the commit, without an environment.
func (s Service) version(_ context.Context, _ func(string) string, stdout io.Writer) error {
	_, err := fmt.Fprintf(stdout, "%s %s (commit %s)\n", s.Name, Version, commit())
	return err
}

// commit returns the commit of the binary's source: the one that the Dockerfile has
// set, else the one that Go has recorded.
func commit() string {
	if revision != "" {
		return revision
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return recorded(info.Settings)
}

// recorded returns the commit among the settings of a build, with "-modified" behind
// it if files differed from that commit, and "unknown" if Go saw no repository.
func recorded(settings []debug.BuildSetting) string {
	found, modified := "unknown", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			found = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-modified"
		}
	}
	return found + modified
}
