package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/projection"
)

// rowsOf is a backfill.Filler with two pages. Its answer to from fails is an error, and
// failed rows of each page could not be written.
type rowsOf struct {
	kind   string
	fails  map[string]error
	failed int
}

func (r rowsOf) Type() string { return r.kind }

func (r rowsOf) Fill(_ context.Context, from string) (projection.Filled, error) {
	f := projection.Filled{Next: "b", Rows: 3, Written: 2, Failed: r.failed, AsOf: time.Now().Add(time.Hour), Estimate: 6}
	if from == "b" {
		f.Next, f.Done = "", true
	}
	err := r.fails[from]
	if !eventing.IsPermanent(err) {
		delete(r.fails, from) // which another attempt finds gone
	}
	return f, err
}

// backfill is the tool for these fillers.
func (b *bench) backfill(fillers ...backfill.Filler) command.Tool {
	return named(b.readModel(fillers...).Tools(), "backfill")
}

func named(tools []command.Tool, name string) command.Tool {
	return tools[slices.IndexFunc(tools, func(t command.Tool) bool { return t.Name == name })]
}

// backfilling runs a command line of the tool. With the word failing, the second type fails;
// with the word cut, it does in its second page; with the word trying, an attempt does; with
// the word odd, some of its rows cannot be written.
func (b *bench) backfilling(t *testing.T, wantCode int, terminal bool, line string) (stdout, stderr string) {
	t.Helper()
	like := rowsOf{kind: "like", fails: map[string]error{}}
	has := func(word string) (found bool) {
		line, _, found = strings.Cut(line, " "+word)
		return found
	}
	switch never := eventing.Permanent(errors.New("the owner is no owner")); {
	case has("failing"):
		like.fails[""] = never
	case has("cut"):
		like.fails["b"] = never
	case has("trying"):
		like.fails["b"] = errors.New("the owner is \x1b away")
	case has("odd"):
		like.failed = 2
	}
	tool := b.backfill(rowsOf{kind: "video"}, like)
	var out, errOut bytes.Buffer
	if terminal {
		call := command.Call{Args: strings.Fields(line), Getenv: b.getenv("catalog"), Out: &out, Err: &errOut, ErrIsTerminal: true}
		if err := tool.Run(t.Context(), call); (err != nil) != (wantCode != 0) {
			t.Errorf("%s: %v", line, err)
		}
		return out.String(), errOut.String()
	}
	service := command.Service{Name: "catalog", Tools: []command.Tool{tool}}
	args := append([]string{"backfill"}, strings.Fields(line)...)
	if code := service.Run(t.Context(), args, b.getenv("catalog"), &out, &errOut); code != wantCode {
		t.Errorf("%s: code %d, want %d\nstdout %s\nstderr %s", line, code, wantCode, out.String(), errOut.String())
	}
	return out.String(), errOut.String()
}

// The tool backfills all types or one, shows what it has done in text or as one object, and
// draws a bar on a terminal. A type that fails does not stop the others.
func TestBackfillTool(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for line, says := range map[string]string{
		"--rate -1": "--rate", "now": `"now"`, "--type channel": "want one of video, like", "--fast": "-fast",
	} {
		if _, stderr := b.backfilling(t, 2, false, line); !strings.Contains(stderr, says) {
			t.Errorf("%s: %q", line, stderr)
		}
	}
	if stdout, _ := b.backfilling(t, 0, false, "--help"); stdout != helpOf("backfill") {
		t.Errorf("help: %q", stdout)
	}
	stdout, _ := b.backfilling(t, 0, false, "--type video --rate 0")
	if !strings.HasPrefix(stdout, "video: 6 rows read, 4 written, finished at ") || strings.Contains(stdout, "like") {
		t.Errorf("one type: %q", stdout)
	}
	if _, stderr := b.backfilling(t, 0, false, "--type video"); !strings.Contains(stderr, "video: nothing is done") {
		t.Errorf("once more: %q", stderr)
	}
	var result struct{ Backfills []backfill.State }
	stdout, stderr := b.backfilling(t, 1, false, "--json failing")
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || len(result.Backfills) != 2 || result.Backfills[0].FinishedAt == nil ||
		result.Backfills[1].FinishedAt != nil || result.Backfills[1].StartedAt == nil || !strings.Contains(stderr, "no owner") {
		t.Errorf("one that fails: %s, %s, %v", stdout, stderr, err)
	}
	if stdout, _ := b.backfilling(t, 1, false, "--type like failing"); !strings.Contains(stdout, "not finished: run it again") {
		t.Errorf("one that fails: %q", stdout)
	}
	stdout, stderr = b.backfilling(t, 0, true, "--rate 0")
	if strings.Contains(stderr, "video [") || !strings.Contains(stderr, "like [") || !strings.Contains(stderr, "6 of about 6 rows") ||
		strings.Count(stdout, "finished at") != 2 {
		t.Errorf("at a terminal: %q, %q", stdout, stderr)
	}
}

// The bar of a backfill that fails is not whole, and an attempt that fails is said above it.
// No bar goes into a file.
func TestBackfillBar(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, stderr := b.backfilling(t, 1, true, "--type like --rate 0 cut")
	if !strings.Contains(stderr, "like [===============               ] 3 of about 6 rows\x1b[K\n") {
		t.Errorf("cut off: %q", stderr)
	}
	_, stderr = b.backfilling(t, 0, true, "--type like --rate 0 --restart trying")
	if !strings.Contains(stderr, "\r\x1b[Klike: the owner is \uFFFD away, trying again\n") || !strings.Contains(stderr, "] 6 of about 6 rows\x1b[K\n") {
		t.Errorf("an attempt: %q", stderr)
	}
	var out, errOut bytes.Buffer
	tool := b.backfill(rowsOf{kind: "like", fails: map[string]error{"": errors.New("the owner is away")}})
	call := command.Call{Args: []string{"--restart"}, Getenv: b.getenv("catalog"), Out: &out, Err: &errOut}
	if err := tool.Run(t.Context(), call); err != nil || errOut.String() != "like: the owner is away, trying again\n" {
		t.Errorf("into a file: %q, %v", errOut.String(), err)
	}
}

// A backfill that has left rows says how many, and where their ids are.
func TestBackfillWithOddRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stdout, stderr := b.backfilling(t, 1, false, "--type like --rate 0 odd")
	if !strings.Contains(stdout, "6 rows read, 4 written, 4 failed, finished at") || !strings.Contains(stderr, "like: 4 rows could not be written") {
		t.Errorf("%q, %q", stdout, stderr)
	}
	stdout, _ = b.backfilling(t, 1, false, "--restart --rate 0 --json odd")
	var result struct {
		Backfills []struct {
			RowsFailed int `json:"rows_failed"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || len(result.Backfills) != 2 || result.Backfills[0].RowsFailed != 0 || result.Backfills[1].RowsFailed != 4 {
		t.Errorf("%s, %v", stdout, err)
	}
}
