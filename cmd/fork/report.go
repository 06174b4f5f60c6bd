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

// classes are in the order in which they are tried.
var classes = []class{
	{"local Pub/Sub, its own module", regexp.MustCompile(`^localpubsub/`)},
	{"generated", regexp.MustCompile(`\.pb\.go$|^proto/released` +
		`|^deploy/(schemas/.*\.proto$|observability/(rules|grafana/boards)|terraform/(alerts|boards)\.json)`)},
	{"Go: tests and their support", regexp.MustCompile(`_test\.go$|/testdata/|^internal/(attack|authtest|history|pgtest|porttest)/`)},
	{"Go: services and their parts", regexp.MustCompile(`^(services|internal|migrations|deploy)/.*\.go$`)},
	{"Go: library pkg/eventing", regexp.MustCompile(`^pkg/.*\.go$`)},
	{"Go: developers' commands", regexp.MustCompile(`^cmd/.*\.go$`)},
	{"SQL", regexp.MustCompile(`\.sql$`)},
	{"proto", regexp.MustCompile(`\.proto$`)},
	{"OpenAPI", regexp.MustCompile(`openapi\.json$`)},
	{"Terraform", regexp.MustCompile(`^deploy/terraform/.*\.(tf|hcl|example)$`)},
	{"documents", regexp.MustCompile(`\.(md|png)$`)},
}

const otherFiles = "other: CI, containers, settings"

// report prints the files and lines of a fork by kind, and the time that it took. Lines of
// Go are those with code.
func report(out io.Writer, dir string, took time.Duration, files []file) {
	count := map[string][2]int{}
	for _, f := range files {
		n := count[classOf(f.name)]
		count[classOf(f.name)] = [2]int{n[0] + 1, n[1] + linesOf(f)}
	}
	fmt.Fprintf(out, "%-32s %6s %8s\n", dir, "files", "lines")
	total := [2]int{}
	names := make([]string, 0, len(classes)+1)
	for _, c := range classes {
		names = append(names, c.name)
	}
	for _, name := range append(slices.Clip(names), otherFiles) {
		fmt.Fprintf(out, "%-32s %6d %8d\n", name, count[name][0], count[name][1])
		total = [2]int{total[0] + count[name][0], total[1] + count[name][1]}
	}
	fmt.Fprintf(out, "%-32s %6d %8d   in %.0f s\n", "all", total[0], total[1], took.Seconds())
}

func classOf(name string) string {
	for _, c := range classes {
		if c.match.MatchString(name) {
			return c.name
		}
	}
	return otherFiles
}

// linesOf counts a file's lines: of Go those with code, of a binary none.
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
