package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// writeRecord writes the record of a fork that was made with these options of the repository at src.
func writeRecord(ctx context.Context, src string, o options) error {
	origin, err := repo.Module(src)
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`# make fork has written this file. An upgrade runs the commands again: docs/adapt.md.
# The origin is %s, %s.
%s
`, origin, state(ctx, src), o.command())
	return repo.Write(filepath.Join(o.dir, repo.Record), text)
}

// command returns the command that makes the fork again in another folder.
func (o options) command() string {
	text := "make fork MODULE=" + o.module + " DIR=../again AGGREGATE=" + o.to.aggregate + " PLURAL=" + o.to.plural +
		" OWNER=" + o.to.owner + " READER=" + o.to.reader + " NAME=" + o.to.name
	if o.without {
		text += " ENGAGEMENT=no"
	}
	return text
}

// state returns the commit of the repository at src, and whether its files differ from the commit.
func state(ctx context.Context, src string) string {
	head, err := repo.Git(ctx, src, "rev-parse", "--verify", "HEAD")
	if err != nil {
		return "without a commit"
	}
	at := "commit " + strings.TrimSpace(head)
	if changes, err := repo.Git(ctx, src, "status", "--porcelain"); err != nil || changes != "" {
		at += " with changes that are not committed"
	}
	return at
}
