package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

// change has the files that the command will write, with their new text. The methods of change only
// collect the new text, except for the method write. err is the first error.
type change struct {
	aggregate Aggregate
	root      string
	module    string
	files     map[string]string // by path below root
	created   []string          // the paths of the files that are new
	err       error
}

// text returns the text of a file with all edits that the change has made so far.
func (c *change) text(name string) string {
	if text, ok := c.files[name]; ok {
		return text
	}
	text, err := os.ReadFile(filepath.Join(c.root, name))
	if err != nil {
		c.fail(err)
	}
	return string(text)
}

func (c *change) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// ahead inserts text before the string anchor in the file name. behind inserts text after the
// anchor. The anchor must occur in the file exactly once.
func (c *change) ahead(name, anchor, text string) { c.around(name, anchor, text, "") }

func (c *change) behind(name, anchor, text string) { c.around(name, anchor, "", text) }

// inside appends text to the block in a Go file whose first line ends with opening. The block is a
// list, a struct, a group of declarations, or the body of a loop. It ends at the first bracket with the
// indentation of its first line, because gofmt has indented the file.
func (c *change) inside(name, opening, text string) {
	if c.err != nil {
		return
	}
	bracket := map[string]string{"{": "}", "(": ")"}[opening[len(opening)-1:]]
	block := regexp.MustCompile(`(?m)^(\t*).*` + regexp.QuoteMeta(opening) + `$`)
	all := c.text(name)
	found := block.FindAllStringSubmatchIndex(all, -1)
	if len(found) != 1 {
		c.fail(missing(name, opening, len(found)))
		return
	}
	body, indent := found[0][1], all[found[0][2]:found[0][3]]
	length := strings.Index(all[body:], "\n"+indent+bracket)
	if length < 0 {
		c.fail(missing(name, bracket, 0))
		return
	}
	end := body + length
	formatted, err := format.Source([]byte(all[:end] + "\n" + strings.TrimRight(text, "\n") + all[end:]))
	if err != nil {
		c.fail(fmt.Errorf("%s: %w", name, err))
		return
	}
	c.files[name] = string(formatted)
}

func (c *change) around(name, anchor, before, after string) {
	if c.err != nil {
		return
	}
	all := c.text(name)
	if n := strings.Count(all, anchor); n != 1 {
		c.fail(missing(name, anchor, n))
		return
	}
	c.files[name] = strings.Replace(all, anchor, before+anchor+after, 1)
}

// pattern replaces each match of the regular expression in the file name by the result of with.
// There must be at least one match.
func (c *change) pattern(name, expression string, with func(match []string) string) {
	if c.err != nil {
		return
	}
	pattern, all := regexp.MustCompile(expression), c.text(name)
	matches := pattern.FindAllStringSubmatchIndex(all, -1)
	if len(matches) == 0 {
		c.fail(missing(name, expression, 0))
		return
	}
	c.files[name] = pattern.ReplaceAllStringFunc(all, func(found string) string { return with(pattern.FindStringSubmatch(found)) })
}

func missing(name, anchor string, n int) error {
	return fmt.Errorf("%s has %q %d times, want once, next to the new lines: add the aggregate by hand, as docs/adapt.md has it",
		name, anchor, n)
}

// create adds the new file name to the change, and renders it from a template. create formats Go,
// and aligns the columns of SQL.
func (c *change) create(name, templateName string) {
	if c.err != nil {
		return
	}
	if _, err := os.Lstat(filepath.Join(c.root, name)); !errors.Is(err, fs.ErrNotExist) {
		c.fail(fmt.Errorf("NAME: %q is taken: %s is there already", c.aggregate.Name, name))
		return
	}
	text := c.part(templateName)
	switch filepath.Ext(name) {
	case ".go":
		formatted, err := format.Source([]byte(text))
		if err != nil {
			c.fail(fmt.Errorf("%s: %w", templateName, err))
			return
		}
		text = string(formatted)
	case ".sql":
		text = alignColumns(text)
	}
	c.files[name] = text
	c.created = append(c.created, name)
}

// part renders a template.
func (c *change) part(name string) string {
	if c.err != nil {
		return ""
	}
	var out bytes.Buffer
	text, err := templates.ReadFile("templates/" + name)
	if err == nil {
		var t *template.Template
		if t, err = template.New(name).Parse(strings.ReplaceAll(string(text), ourModule, c.module)); err == nil {
			err = t.Execute(&out, c.aggregate)
		}
	}
	if err != nil {
		c.fail(err)
	}
	return out.String()
}

// ourModule is the module path in the templates. part replaces it by the module path of the
// repository.
const ourModule = "example.com/lockstep"

var columnLine = regexp.MustCompile(`(?m)^ {2}([a-z_0-9]+) ([a-z0-9]+)((?: [A-Z].*)?,?)$`)

// alignColumns pads the column definitions of a table in SQL, so that the types and the constraints
// stand below each other.
func alignColumns(text string) string {
	name, kind := 0, 0
	for _, m := range columnLine.FindAllStringSubmatch(text, -1) {
		name, kind = max(name, len(m[1])), max(kind, len(m[2]))
	}
	return columnLine.ReplaceAllStringFunc(text, func(line string) string {
		m := columnLine.FindStringSubmatch(line)
		if !strings.HasPrefix(m[3], " ") {
			return fmt.Sprintf("  %-*s %s%s", name, m[1], m[2], m[3])
		}
		return fmt.Sprintf("  %-*s %-*s%s", name, m[1], kind, m[2], m[3])
	})
}
