package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	if c.err != nil {
		return nil, fmt.Errorf("nothing was written: %w", c.err)
	}
	if err := c.checkDeclarations(); err != nil {
		return nil, err
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

// checkDeclarations returns an error if a package of the change would declare or import a name that
// it has already.
func (c *change) checkDeclarations() error {
	for _, dir := range []string{"services/video", "services/catalog", "services"} {
		taken, err := declarations(c.root, dir)
		if err != nil {
			return err
		}
		declared := []string{c.aggregate.Name, "import " + c.aggregate.Name, "import " + c.aggregate.Plural()}
		for _, name := range c.created {
			if filepath.Dir(name) == dir {
				file, err := parser.ParseFile(token.NewFileSet(), name, c.files[name], parser.SkipObjectResolution)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				declared = append(declared, declaredIn(file)...)
			}
		}
		for _, name := range declared {
			if where, twice := taken[name]; twice {
				return fmt.Errorf("NAME: %q is taken: %s has %s; nothing was written", c.aggregate.Name, where, name)
			}
		}
	}
	return nil
}

// declarations returns each name that the package in the folder dir declares or imports, with a
// file that has the name. The key of an imported name begins with "import ".
func declarations(root, dir string) (map[string]string, error) {
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	taken := map[string]string{}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		short := filepath.ToSlash(filepath.Join(dir, filepath.Base(name)))
		for _, declared := range declaredIn(file) {
			taken[declared] = short
		}
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			local := path[strings.LastIndex(path, "/")+1:]
			if spec.Name != nil {
				local = spec.Name.Name
			}
			taken["import "+local] = short
		}
	}
	return taken, nil
}

func declaredIn(file *ast.File) (names []string) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, function(d))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "_" || name == "init" })
}
