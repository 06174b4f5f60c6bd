package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// plan makes the whole change in memory. It writes nothing.
func plan(root string, a Aggregate) (*change, error) {
	c := &change{aggregate: a, root: root, files: map[string]string{}}
	c.module, c.err = repo.Module(root)
	c.checkNames()
	c.newFiles()
	c.protoEdits()
	c.ownerEdits()
	c.readerEdits()
	c.topicEdits()
	c.testEdits()
	c.docEdits()
	c.personalData()
	c.remember()
	if c.err != nil {
		return nil, fmt.Errorf("nothing was written: %w", c.err)
	}
	return c, nil
}

// checkNames fails if the aggregate exists already, if the repository has removed one of that name,
// or if the parent does not exist.
func (c *change) checkNames() {
	a := c.aggregate
	if _, err := os.Lstat(filepath.Join(c.root, "proto", a.Name, "events")); err == nil {
		c.fail(fmt.Errorf("NAME: there is an aggregate %q already, in proto/%s/events", a.Name, a.Name))
	}
	const number = "[0-9][0-9][0-9][0-9][0-9]"
	dropped, _ := filepath.Glob(filepath.Join(c.root, "migrations", "*", number+"_no_"+a.Plural()+".sql")) // the only error is a wrong pattern
	if len(dropped) > 0 {
		name, _ := filepath.Rel(c.root, dropped[0])
		c.fail(fmt.Errorf("NAME: this repository had an aggregate %q: %s has dropped its tables, and topics may still have its events; "+
			"take another name", a.Name, filepath.ToSlash(name)))
	}
	if a.Parent == nil || c.err != nil {
		return
	}
	document, p := c.text("services/video/openapi.json"), a.Parent
	if !strings.Contains(document, `"/v1/`+p.Plural()+`/{id}": {`) && !strings.Contains(document, `"/v1/`+p.Plural()+`/{`+p.Name+`_id}": {`) {
		c.fail(fmt.Errorf("PARENT: there is no aggregate %q with an id of its own: services/video/openapi.json has no path of one", p.Name))
	}
}

// migration returns the path of a new migration in folder, which must exist.
func (c *change) migration(folder string) string {
	if _, err := os.Stat(filepath.Join(c.root, folder)); err != nil {
		c.fail(err)
	}
	number, err := repo.NextMigration(filepath.Join(c.root, folder))
	if err != nil {
		c.fail(err)
	}
	return folder + "/" + number + "_" + c.aggregate.Plural() + ".sql"
}
