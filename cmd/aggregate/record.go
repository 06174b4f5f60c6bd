package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// remember adds the command to the record of a fork. If the repository has no record, it is no fork,
// or an older one: remember then does nothing.
func (c *change) remember() {
	if _, err := os.Lstat(filepath.Join(c.root, repo.Record)); errors.Is(err, fs.ErrNotExist) {
		return
	}
	text := c.text(repo.Record)
	if c.err == nil {
		c.files[repo.Record] = text + c.aggregate.command() + "\n"
	}
}

// command returns the command that adds the aggregate.
func (a Aggregate) command() string {
	fields := make([]string, 0, len(a.Fields))
	for _, f := range a.Fields {
		fields = append(fields, f.Name+":"+f.Kind)
	}
	text := "make aggregate NAME=" + a.Name + ` FIELDS="` + strings.Join(fields, ",") + `"`
	if a.Parent != nil {
		text += " PARENT=" + a.Parent.Name
	}
	return text
}
