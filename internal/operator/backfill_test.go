package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/projection"
)

// rowsOf is a backfill.Filler with two pages.
type rowsOf struct {
	kind string
	fail error
}

func (r rowsOf) Type() string { return r.kind }

func (r rowsOf) Fill(_ context.Context, from string) (projection.Filled, error) {
	f := projection.Filled{Next: "b", Rows: 3, Written: 2, AsOf: time.Now().Add(time.Hour), Estimate: 6}
	if from == "b" {
		f.Next, f.Done = "", true
	}
	return f, r.fail
}

// backfilling runs a command line of the tool. With the word failing, the second type fails.
func (b *bench) backfilling(t *testing.T, wantCode int, terminal bool, line string) (stdout, stderr string) {
	t.Helper()
	var failing error
	if strings.Contains(line, "failing") {
		line, failing = strings.ReplaceAll(line, "failing", ""), eventing.Permanent(errors.New("the owner is no owner"))
	}
	tool := Backfill{OwnerVariable: "OWNER_ADDR", Fillers: func(*pgxpool.Pool, *grpc.ClientConn) []backfill.Filler {
		return []backfill.Filler{rowsOf{"video", nil}, rowsOf{"like", failing}}
	}}.Tool()
	var out, errOut bytes.Buffer
	if terminal {
		call := command.Call{Args: strings.Fields(line), Getenv: b.getenv("catalog"), In: strings.NewReader(""), Out: &out, Err: &errOut}
		if err := tool.Run(t.Context(), call); err != nil {
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
	if stdout, _ := b.backfilling(t, 0, false, "--help"); stdout != backfillUsage {
		t.Errorf("help: %q", stdout)
	}
	stdout, _ := b.backfilling(t, 0, false, "--type video --rate 0")
	if !strings.HasPrefix(stdout, "video: 6 rows read, 4 written, finished at ") || strings.Contains(stdout, "like") {
		t.Errorf("one type: %q", stdout)
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
