package command

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
)

// Version is the release that this source is, or will be. CHANGELOG.md and the labels of the images
// name the same release.
const Version = "v0.1.0"

// revision is the commit of the binary's source. Only the Dockerfile sets revision. Go cannot
// record the commit there, because the files in that build have no history.
var revision string

// version prints the release and the commit, without an environment.
func (s Service) version(_ context.Context, _ func(string) string, stdout io.Writer) error {
	_, err := fmt.Fprintf(stdout, "%s %s (commit %s)\n", s.Name, Version, commit())
	return err
}

// commit returns the commit of the binary's source. It prefers the commit that the Dockerfile has
// set to the commit that Go has recorded.
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

// recorded returns the commit in the settings of a build. It adds "-modified" if files differed
// from that commit. It returns "unknown" if Go saw no repository.
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
