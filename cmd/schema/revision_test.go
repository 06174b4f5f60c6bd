package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/topics"
)

const schemasDir = "../../deploy/schemas"

// TestSchemasAreOfToday repeats a check of `make verify`, for runs of the tests
// alone.
func TestSchemasAreOfToday(t *testing.T) {
	t.Parallel()
	today, err := define(t.Context(), "../../proto", topics.All)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(definitionsIn(t, schemasDir), today); diff != "" {
		t.Errorf("make generate is due (-deploy/schemas +proto):\n%s", diff)
	}
}

// TestNextRevision checks that Pub/Sub would accept today's schemas as
// revisions of the released ones. To break the contract on purpose, give the
// topic a new schema, or a new name, and then run `make proto-release`.
func TestNextRevision(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	today := definitionsIn(t, schemasDir)
	for name, released := range definitionsIn(t, filepath.Join(schemasDir, "released")) {
		if today[name] == "" {
			t.Errorf("%s is gone", name)
			continue
		}
		if err := b.revise(t, name, released, today[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBreakingEdits edits a copy of proto/ and checks which tool refuses the
// edit: buf, as in `make lint`, or Pub/Sub's rules for revisions of a schema.
func TestBreakingEdits(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	buf := findBuf()
	if buf == "" {
		t.Log("buf is not built yet, `make lint` does that: without its half")
	}
	for name, c := range map[string]struct {
		old, replacement string
		buf, pubsub      string // part of the refusal; empty: accepted
	}{
		"a field gets another number":          {"string reason = 5;", "string reason = 6;", `"5"`, "reason has number"},
		"a field gets another type":            {"int64 version = 7;", "string version = 7;", "version", "its type was int64"},
		"a number is given to another field":   {"string uploader_id = 2;", "string channel_id = 2;", "uploader_id", "its name was uploader_id"},
		"a field loses its presence":           {"optional string title = 3;", "string title = 3;", "title", "explicit presence"},
		"a list becomes one":                   {"repeated string cleared = 8;", "string cleared = 8;", "cleared", "its label"},
		"a list goes":                          {"repeated string cleared = 8;", "", "cleared", "only optional fields"},
		"an arm leaves its oneof":              {"oneof payload {\n    VideoCreated created = 10;", "VideoCreated created = 10;\n  oneof payload {", "created", "its oneof"},
		"arms swap their numbers":              {"VideoUpdated updated = 11;\n    VideoDeleted deleted = 12;", "VideoUpdated updated = 12;\n    VideoDeleted deleted = 11;", "deleted", "its name was"},
		"a field goes":                         {"string reason = 5;", "", "reason", ""},
		"a value of an enum gets another name": {"EVENT_TYPE_VIDEO_DELETED = 3;", "EVENT_TYPE_VIDEO_GONE = 3;", "EVENT_TYPE_VIDEO_DELETED", ""},
		"new: a field":                         {"string reason = 5;", "string reason = 5;\n  string reason_code = 6;", "", ""},
		"new: a value of an enum":              {"EVENT_TYPE_VIDEO_DELETED = 3;", "EVENT_TYPE_VIDEO_DELETED = 3;\n  EVENT_TYPE_VIDEO_HIDDEN = 400;", "", ""},
		"new: an event":                        {"oneof payload {", "message Hidden { string video_id = 1; }\n  oneof payload {\n    Hidden hidden = 130;", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sources(t)
			edit(t, dir, "video", c.old, c.replacement)
			edited, err := define(t.Context(), dir, topics.All)
			if err != nil {
				t.Fatal(err)
			}
			err = b.revise(t, strings.ReplaceAll(name, " ", "-"), definition(t, topics.Video), edited["video_events.proto"])
			refused(t, "Pub/Sub", c.pubsub, status.Code(err) == codes.InvalidArgument, message(err))
			if buf == "" {
				return
			}
			out, broke := breaking(t, buf, dir)
			refused(t, "buf", c.buf, broke, out)
		})
	}
}

// refused requires a refusal with the text, or none if the text is empty.
func refused(t testing.TB, by, want string, got bool, text string) {
	t.Helper()
	if got != (want != "") || !strings.Contains(text, want) {
		t.Errorf("%s refuses: %v: %s; want %q", by, got, text, want)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// revise creates a schema, and returns Pub/Sub's answer to a revision.
func (b broker) revise(t testing.TB, id, before, after string) error {
	t.Helper()
	id = "schema-" + strings.ReplaceAll(id, ":", "")
	name := b.schema(t, id, before)
	_, err := b.CommitSchema(t.Context(), &pubsubpb.CommitSchemaRequest{Name: name, Schema: source(name, after)})
	return err
}

// breaking is `buf breaking`, as `make lint` runs it.
func breaking(t testing.TB, buf, dir string) (out string, broke bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, buf, "breaking", "--against", "released.yaml")
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	// buf exits with 100 if it found a breaking change.
	const found = 100
	if err != nil && cmd.ProcessState.ExitCode() != found {
		t.Fatalf("%v: %s", err, text)
	}
	return string(text), err != nil
}

func findBuf() string {
	if built, err := filepath.Abs("../../build/bin/buf"); err == nil {
		if _, err := os.Stat(built); err == nil {
			return built
		}
	}
	found, err := exec.LookPath("buf")
	if err != nil {
		return ""
	}
	return found
}

func definitionsIn(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := contents(t, dir)
	for name := range files {
		if filepath.Ext(name) != ".proto" {
			delete(files, name)
		}
	}
	if len(files) == 0 {
		t.Fatalf("%s has no schemas", dir)
	}
	return files
}
