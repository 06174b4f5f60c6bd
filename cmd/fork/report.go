package main

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A class is a kind of files that the report counts together.
type class struct {
	name  string
	match *regexp.Regexp
}

// classes are in the order in which classOf tries them. goClasses has the classes of the Go files
// that match none of these. The class of such a file is the kind of its package.
var classes = []class{
	{"local Pub/Sub, its own module", regexp.MustCompile(`^localpubsub/`)},
	{generatedFiles, regexp.MustCompile(`\.pb\.go$|^proto/released` +
		`|^deploy/(schemas/.*\.proto$|observability/(rules|grafana/boards)|terraform/(alerts|boards)\.json)`)},
	{forTests, regexp.MustCompile(`_test\.go$|/testdata/`)},
	{"SQL", regexp.MustCompile(`\.sql$`)},
	{"proto", regexp.MustCompile(`\.proto$`)},
	{"OpenAPI", regexp.MustCompile(`openapi\.json$`)},
	{"Terraform", regexp.MustCompile(`^deploy/terraform/.*\.(tf|hcl|example)$`)},
	{"documents", regexp.MustCompile(`\.(md|png)$`)},
}

const (
	generatedFiles = "generated"
	otherFiles     = "other: CI, containers, settings"
)

// report prints the number of files and lines of a fork, by class, and the time that the fork took.
// In Go files, only lines with code count. The map of has folders as keys. Its values are the kinds
// of the packages in these folders.
func report(out io.Writer, dir string, took time.Duration, files []file, of map[string]string) {
	count := map[string][2]int{}
	for _, f := range files {
		name := classOf(f.name, of)
		count[name] = [2]int{count[name][0] + 1, count[name][1] + linesOf(f)}
	}
	names := slices.Clone(goClasses)
	for _, c := range classes {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	fmt.Fprintf(out, "%-32s %6s %8s\n", dir, "files", "lines")
	total := [2]int{}
	for _, name := range append(names, otherFiles) {
		fmt.Fprintf(out, "%-32s %6d %8d\n", name, count[name][0], count[name][1])
		total = [2]int{total[0] + count[name][0], total[1] + count[name][1]}
	}
	fmt.Fprintf(out, "%-32s %6d %8d   in %.0f s\n", "all", total[0], total[1], took.Seconds())
}

func classOf(name string, of map[string]string) string {
	for _, c := range classes {
		if c.match.MatchString(name) {
			return c.name
		}
	}
	if path.Ext(name) != ".go" {
		return otherFiles
	}
	if c, found := of[path.Dir(name)]; found {
		return c
	}
	return forTests // its package is not built
}

// linesOf counts the lines of a file. In a Go file, only lines with code count. A binary file has
// no lines.
func linesOf(f file) int {
	switch {
	case isBinary(f.content):
		return 0
	case path.Ext(f.name) != ".go":
		return bytes.Count(f.content, []byte("\n"))
	}
	n := 0
	for line := range strings.Lines(string(f.content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}
