package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An edit changes one place of the module's text.
type edit struct {
	file string
	// in is the first line of the block that contains the place. If in is empty, the place is
	// anywhere in the file.
	in string
	// old must occur exactly once. If old is empty, new replaces the whole block.
	old, new string
}

// A mutant is a mistake that a person could make.
type mutant struct {
	name  string
	edits []edit
}

// wrongEdits are all mistakes. A check must catch each of them.
var wrongEdits = slices.Concat(wrongRuns, wrongCallers, wrongReleases, wrongJobs, wrongProjects)

// apply makes the edit in the copy of the module.
func (e edit) apply(m *module) error {
	content, err := os.ReadFile(m.path(e.file))
	if err != nil {
		return err
	}
	text := string(content)
	from, to := 0, len(text)
	if e.in != "" {
		if from = strings.Index(text, e.in+"\n"); from < 0 {
			return fmt.Errorf("%s has no %q", e.file, e.in)
		}
		to = from + strings.Index(text[from:], "\n}\n") + len("\n}\n")
	}
	block := text[from:to]
	switch {
	case e.old == "" && e.in != "":
		block = e.new
	case strings.Count(block, e.old) != 1:
		return fmt.Errorf("%s %s has %q %d times, want once", e.file, e.in, e.old, strings.Count(block, e.old))
	default:
		block = strings.Replace(block, e.old, e.new, 1)
	}
	return os.WriteFile(m.path(e.file), []byte(text[:from]+block+text[to:]), 0o600)
}

// mutants examines the wrong edits, and prints a row of a table for each. If an earlier run was cut
// off, mutants begins with the findings of that run.
func mutants(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "")
	if err := parse(flags, args); err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	plugins, err := obtain(ctx, true, stdout)
	if err != nil {
		return err
	}
	provider, err := startProvider(ctx, plugins)
	if err != nil {
		return err
	}
	defer provider.stop() //nolint:errcheck // it has nothing to lose
	known, err := readFindings(filepath.Join(repository, findingsFile), plugins)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, "| wrong edit | caught by | which says |\n| --- | --- | --- |\n")
	var missed []error
	for _, w := range chosen {
		found, err := w.find(ctx, plugins, provider, known)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		if found.Level == "" {
			missed = append(missed, fmt.Errorf("nothing catches: %s", w.name))
		}
		fmt.Fprintf(stdout, "| %s | %s | %s |\n", w.name, found.Level, found.Says)
	}
	fmt.Fprintf(stdout, "%d wrong edits, %d of them caught\n", len(chosen), len(chosen)-len(missed))
	if len(missed) == 0 && *only == "" {
		missed = append(missed, known.remove())
	}
	return errors.Join(missed...)
}

// choose returns the wrong edits with a name that matches only, a regular expression.
func choose(only string) (chosen []mutant, err error) {
	matching, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("%w: -only: %w", errUsage, err)
	}
	for _, w := range wrongEdits {
		if matching.MatchString(w.name) {
			chosen = append(chosen, w)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w: -only: no wrong edit has a name that matches %q", errUsage, only)
	}
	return chosen, nil
}

// find returns the finding of an earlier run if there is one. Otherwise it examines the mutant and
// stores the finding.
func (w mutant) find(ctx context.Context, plugins string, provider *running, known *findings) (f finding, err error) {
	f, found := known.of(w.name)
	if found {
		return f, nil
	}
	f = finding{Name: w.name}
	if f.Level, f.Says, err = w.examine(ctx, plugins, provider); err != nil || f.Level == "" {
		return f, err
	}
	return f, known.add(f)
}

// examine returns the first level that catches the mutant, and the message of this level. If no
// level catches it, caught is empty.
func (w mutant) examine(ctx context.Context, plugins string, provider *running) (caught, says string, err error) {
	m, err := newModule(plugins)
	if err != nil {
		return "", "", err
	}
	defer m.remove() //nolint:errcheck // it is in a temporary directory
	m.with(provider)
	m.hasty = true
	for _, e := range w.edits {
		if err := e.apply(m); err != nil {
			return "", "", err
		}
	}
	// The level fmt is left out, because formatting has no effect on the module's behaviour.
	for _, l := range slices.DeleteFunc(slices.Clone(levels), func(l level) bool { return l.name == "fmt" }) {
		if _, err := l.run(ctx, m); err != nil {
			first, _, _ := strings.Cut(err.Error(), "\n")
			return l.name, first, ctx.Err()
		}
	}
	return "", "", nil
}
