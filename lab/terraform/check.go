package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"example.com/lockstep/pkg/eventing/inbox"
)

// A level is one kind of check of the module. The levels are in the order of their cost, the
// cheapest first.
type level struct {
	name string
	run  func(ctx context.Context, m *module) (seen string, err error)
}

var levels = []level{
	{"fmt", formatted},
	{"windows", windowsAgree},
	{"alerts", alertsAgree},
	{"boards", boardsAgree},
	{"validate", validated},
	{"order", readersFirst},
	{"example", examplePlanned},
	{"grants", grantsUnchanged},
	{"test", tested},
}

func check(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	write, optional := flags.Bool("write", false, ""), flags.Bool("optional", false, "")
	if err := parse(flags, args); err != nil {
		return err
	}
	plugins, err := obtain(ctx, !*optional, stdout)
	possible := levels
	if errors.Is(err, errMissing) && *optional {
		fmt.Fprintln(stdout, "skipped:", err)
		if plugins == "" {
			return nil
		}
		possible, err = levels[:1], nil // formatting needs no provider
	}
	if err != nil {
		return err
	}
	m, err := newModule(plugins)
	if err != nil {
		return err
	}
	defer m.remove() //nolint:errcheck // it is in a temporary directory
	if len(possible) > 1 {
		provider, err := startProvider(ctx, plugins)
		if err != nil {
			return err
		}
		defer provider.stop() //nolint:errcheck // it has nothing to lose
		m.with(provider)
	}
	if *write {
		return writeGrants(ctx, m)
	}
	for _, l := range possible {
		start := time.Now()
		seen, err := l.run(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		fmt.Fprintf(stdout, "%-9s ok  %5.1f s  %s\n", l.name, time.Since(start).Seconds(), seen)
	}
	return nil
}

func formatted(ctx context.Context, m *module) (string, error) {
	diff, err := m.terraform(ctx, "fmt", "-check", "-recursive", "-diff")
	if err != nil {
		return "", fmt.Errorf("`terraform fmt -recursive %s` would change:\n%s", moduleDir, diff)
	}
	return "", nil
}

// diagnostic is one of Terraform's messages about a module.
type diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Range    struct {
		Filename string `json:"filename"`
		Start    struct {
			Line int `json:"line"`
		} `json:"start"`
	} `json:"range"`
}

func (d diagnostic) String() string {
	text := d.Detail
	if d.Summary != "Test assertion failed" {
		text = strings.TrimSuffix(d.Summary+": "+d.Detail, ": ")
	}
	if d.Range.Filename != "" {
		text = fmt.Sprintf("%s:%d: %s", d.Range.Filename, d.Range.Start.Line, text)
	}
	return text
}

func validated(ctx context.Context, m *module) (string, error) {
	output, err := m.terraform(ctx, "validate", "-json")
	var result struct {
		Diagnostics []diagnostic `json:"diagnostics"`
	}
	if unreadable := json.Unmarshal(output, &result); unreadable != nil {
		return "", errors.Join(err, unreadable)
	}
	var wrong []error
	for _, d := range result.Diagnostics {
		// The dev_overrides in the configuration cause a warning, which is no error.
		if d.Severity == "error" {
			wrong = append(wrong, errors.New(d.String()))
		}
	}
	return "", errors.Join(wrong...)
}

// event is one line of `terraform test -json`.
type event struct {
	Type       string     `json:"type"`
	Diagnostic diagnostic `json:"diagnostic"`
	Run        string     `json:"@testrun"`
	Summary    struct {
		Passed int `json:"passed"`
	} `json:"test_summary"`
	State json.RawMessage `json:"test_state"`
}

// events calls handle for each JSON line of Terraform's output. It skips other lines, which are
// warnings.
func events(output []byte, handle func(event) error) error {
	for line := range bytes.Lines(output) {
		var e event
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read what Terraform prints: %w", err)
		}
		if err := handle(e); err != nil {
			return err
		}
	}
	return nil
}

// test runs Terraform's tests and calls handle for each event. The returned error lists the failed
// tests.
func (m *module) test(ctx context.Context, handle func(event) error, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	seen := &failures{}
	if m.hasty {
		seen.first = cancel
	}
	err := m.run(ctx, seen, append([]string{"test", "-json"}, args...)...)
	var wrong []error
	unreadable := events(seen.output.Bytes(), func(e event) error {
		if e.Type == "diagnostic" && e.Diagnostic.Severity == "error" {
			wrong = append(wrong, fmt.Errorf("%s: %s", e.Run, e.Diagnostic))
		}
		return handle(e)
	})
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	return errors.Join(err, unreadable)
}

// failures collects the output of the tests, and notices the first failure.
type failures struct {
	output bytes.Buffer
	first  func() // if not nil, it is called when a failure is printed
}

// Write implements io.Writer. If the line of a failure comes in two parts, Write may miss the
// failure. test finds this failure after the run.
func (f *failures) Write(p []byte) (int, error) {
	if f.first != nil && bytes.Contains(p, []byte(`"severity":"error"`)) {
		f.first()
	}
	return f.output.Write(p)
}

func tested(ctx context.Context, m *module) (string, error) { return m.passed(ctx) }

var suggested = regexp.MustCompile(`(?m)^# (\w+ += )`)

// examplePlanned plans the module with the values of the example file, and then with all suggested
// values in addition. A deployment starts with the example file.
func examplePlanned(ctx context.Context, m *module) (string, error) {
	const example, all = "terraform.tfvars.example", "all.tfvars"
	text, err := os.ReadFile(m.path(example))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(m.path(all), suggested.ReplaceAll(text, []byte("$1")), 0o600); err != nil {
		return "", err
	}
	var summary string
	for _, file := range []string{example, all} {
		summary, err = m.passed(ctx, "-test-directory=tests/example", "-var-file="+file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
	}
	return summary + ", and with all suggestions", nil
}

// passed runs the tests. It returns a text with the number of runs that passed.
func (m *module) passed(ctx context.Context, args ...string) (string, error) {
	passed := 0
	err := m.test(ctx, func(e event) error {
		passed += e.Summary.Passed
		return nil
	}, args...)
	if err == nil && passed == 0 {
		err = errors.New("no test has run")
	}
	return strconv.Itoa(passed) + " passed", err
}

var inboxRetention = regexp.MustCompile(`(?m)^\s*inbox_retention_days\s*=\s*(\d+)$`)

// windowsAgree compares a constant of the module with the code. The constant is the time for which
// the inbox remembers applied events.
func windowsAgree(_ context.Context, m *module) (string, error) {
	return inboxRemembers(m.path("."))
}

func inboxRemembers(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "pubsub.tf"))
	if err != nil {
		return "", err
	}
	found := inboxRetention.FindSubmatch(text)
	if found == nil {
		return "", errors.New("pubsub.tf has no inbox_retention_days")
	}
	days, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return "", err
	}
	if keeps := time.Duration(days) * 24 * time.Hour; keeps != inbox.Retention {
		return "", fmt.Errorf("pubsub.tf believes that the inbox remembers for %v; it does for %v", keeps, inbox.Retention)
	}
	return fmt.Sprintf("the inbox remembers for %d days", days), nil
}
