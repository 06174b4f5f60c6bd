package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/localpubsub/conformance"
	"example.com/lockstep/localpubsub/peer"
)

func TestEmulator(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts a Java program")
	}
	holdTo(t, locals()[1])
}

func TestPstest(t *testing.T) {
	t.Parallel()
	holdTo(t, locals()[2])
}

// holdTo tests all behaviours and requires the outcomes of the list of
// departures.
func holdTo(t *testing.T, l local) {
	t.Helper()
	tried, err := l.try(t.Context(), conformance.Behaviours(), t.Output())
	if errors.Is(err, peer.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, outcome := range tried.outcomes {
		if err := outcome.Unexpected(tried.subject); err != nil {
			t.Errorf("%s: %s: %v", outcome.Behaviour.Area, outcome.Behaviour.Name, err)
		}
	}
}

// The page has a row for each behaviour, in their order, and the repository's
// own fails none.
func TestDocumentIsUpToDate(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", document))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, b := range conformance.Behaviours() {
		want = append(want, "["+escape(b.Name)+"]("+b.Source+") | ✓")
	}
	row := regexp.MustCompile(`^\|[^|]*\| (\[[^|]*\) \| [✓✗]) \|`)
	for line := range strings.Lines(string(text)) {
		if match := row.FindStringSubmatch(line); match != nil {
			got = append(got, match[1])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is out of date; run `go run ./cmd/conformance -write` (-want +got):\n%s", document, diff)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	behaviours := []conformance.Behaviour{
		{Name: "it_flies", Area: "air", Source: "https://example.com/fly"},
		{Name: "it lands", Area: "air", Source: "https://example.com/land"},
		{Name: "it floats", Area: "water", Source: "https://example.com/float"},
	}
	ours := column{subject: &conformance.Subject{Name: "ours"}, outcomes: []conformance.Outcome{
		{Behaviour: behaviours[0]}, {Behaviour: behaviours[1]}, {Behaviour: behaviours[2], Err: errors.New("it\nsank")},
	}}
	theirs := column{subject: &conformance.Subject{Name: "theirs", Departures: map[string]conformance.Departure{
		"it_flies":  {Why: "it has no wings"},
		"it lands":  {Why: "it crashes", Harmful: true},
		"it floats": {Why: "it has no wings"},
	}}, outcomes: []conformance.Outcome{
		{Behaviour: behaviours[0], Err: errors.New("no wings")}, {Behaviour: behaviours[1], Left: true},
		{Behaviour: behaviours[2], Err: errors.New("no wings")},
	}}
	const want = `| area | behaviour | ours | theirs |
| --- | --- | :-: | :-: |
| air | [it\_flies](https://example.com/fly) | ✓ | ✗ |
| | [it lands](https://example.com/land) | ✓ | ✗ |
| water | [it floats](https://example.com/float) | ✗ | ✗ |
| | **of these** | **2/3** | **0/3** |

### ours

- *it floats*: it sank

### theirs

- *it\_flies*; *it floats*: it has no wings
- *it lands*: it crashes (not run)
`
	var got bytes.Buffer
	made := table{behaviours: behaviours, columns: []column{ours, theirs}}
	made.print(&got)
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}

	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := made.write(page); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("before\n"+begin+"\n"+want+"\n"+end+"after\n", string(text)); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}

	if err := verdict([]column{ours, theirs}, &got); err == nil || !strings.Contains(err.Error(), "ours departs from 1 of 3") {
		t.Errorf("verdict = %v, want that ours fails", err)
	}
	if err := verdict([]column{theirs}, &got); err == nil {
		t.Error("verdict = nil on what departs as listed")
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		code   int
		stderr string
	}{
		"-help":                 {0, ""},
		"-only (":               {2, "missing closing )"},
		"-write -only seek":     {2, "-write takes a whole run"},
		"-write -project p":     {2, "-write takes a whole run"},
		"extra":                 {2, `unexpected argument "extra"`},
		"-only no.such.thing":   {1, "matches no behaviour"},
		"-colour red":           {2, "flag provided but not defined"},
		"-only ^a.new.topic.is": {0, "ours: 1 of 1 behaviours"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(line), &stdout, &stderr); code != want.code || !strings.Contains(stderr.String(), want.stderr) {
			t.Errorf("%s: code %d, stderr %q; want %d and %q", line, code, stderr.String(), want.code, want.stderr)
		}
		if begins := strings.HasPrefix(stdout.String(), "| area |") || stdout.String() == usage; want.code == 0 && !begins {
			t.Errorf("%s: stdout is %q", line, stdout.String())
		}
	}
}
