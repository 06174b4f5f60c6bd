package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing"
)

// generate returns the pages of the definitions in a folder.
func generate(t *testing.T, source string) (api, events string, err error) {
	t.Helper()
	out := t.TempDir()
	if err := run(t.Context(), []string{"-proto", source, "-o", out}, io.Discard); err != nil {
		return "", "", err
	}
	return read(t, out, "grpc.md"), read(t, out, "events.md"), nil
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const everyKind = `syntax = "proto3";
// Things.
package thing.v1;
import "google/protobuf/timestamp.proto";
// ThingService has things.
service ThingService {
  // Get reads | one. It is old.
  //
  // Reasons of errors: NONE_LEFT.
  rpc Get(GetRequest) returns (stream GetResponse);
}
message GetRequest {
  string name = 1; // <of> it
  bool old = 2 [deprecated = true];
  optional int32 maybe = 3;
}
// What there is.
message GetResponse {
  repeated Thing things = 1;
  map<string, Kind> kinds = 2;
  oneof either {
    google.protobuf.Timestamp at = 4;
    Nothing none = 5;
  }
}
message Thing {}
message Nothing {}
// Kind is a kind.
enum Kind {
  // Unknown.
  KIND_UNSPECIFIED = 0;
}
`

func TestReference(t *testing.T) {
	t.Parallel()
	dir, topic := t.TempDir(), topics.All[0]
	for name, text := range map[string]string{
		"thing/v1/thing.proto": everyKind, "event/v1/event.proto": "syntax = \"proto3\";\npackage " + topic.Aggregate + `.events.v1;
			message Event { oneof payload { Begun begun = 1; } }
			// The first.
			message Begun { optional string name = 1; }
		`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, events, err := generate(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## thing.v1.ThingService\n\nThingService has things.\n",
		"| [Get](#ThingService.Get) | Get reads \\| one |\n",
		"### ThingService.Get\n\nGet reads | one. It is old.\n\nReasons of errors: NONE_LEFT.\n",
		"Request: `GetRequest`\n", "| `name` | 1 | `string` | \\<of> it |\n", "| `old` | 2 | `bool` | Deprecated. |\n",
		"| `maybe` | 3 | optional `int32` |  |\n", "Answer: a stream of `GetResponse`. What there is.\n",
		"| `things` | 1 | repeated [`Thing`](#thing.v1.Thing) |  |\n", "| `kinds` | 2 | map of `string` to [`Kind`](#thing.v1.Kind) |  |\n",
		"| `at` | 4 | `google.protobuf.Timestamp`, one of `either` |  |\n", "## Messages of thing.v1\n", "### thing.v1.Nothing\n\nNo fields.\n",
		"### thing.v1.Kind\n\nKind is a kind.\n\n| value | number | |\n| --- | --- | --- |\n| `KIND_UNSPECIFIED` | 0 | Unknown. |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, want := range []string{
		"| `" + topic.Name + "` | `" + topic.Aggregate + "` | [`", "](#" + topic.Aggregate + ".events.v1.Event) | `Begun` |\n",
		".Begun\n\nThe first.\n", "| `name` | 1 | optional `string` |  |\n",
	} {
		if !strings.Contains(strings.TrimPrefix(events, rules), want) {
			t.Errorf("no %q in %s", want, strings.TrimPrefix(events, rules))
		}
	}
	if strings.Contains(got, "events.v1.Event") || strings.Contains(got, "### thing.v1.GetRequest") {
		t.Error("a package without services, or a request for the second time")
	}
	if t.Failed() {
		t.Log(strings.TrimPrefix(got, intro))
	}
	if _, _, err := generate(t, filepath.Join(dir, "event")); err == nil || !strings.Contains(err.Error(), "no definition of a service") {
		t.Errorf("without services: %v", err)
	}
}

// literal is a reason in code: of a problem, or in the table of the codes' own reasons.
var literal = regexp.MustCompile(`(?:problem\.New\(problem\.\w+, |Reason: +|tooMany\(|e\.Reason, e\.RetryAfter = \w+, |Reason\w+ += )"([A-Z_]+)"`)

// ofREST are the reasons that only REST has, and those that each error names more exactly.
var ofREST = []string{"TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE", "METHOD_NOT_ALLOWED", "NOT_FOUND", "GONE"}

// TestReasonsAreDocumented compares the reasons in docs/grpc.md with those in the code: each of
// these is there, with its code, and no other one is.
func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	text := read(t, "../../docs", "grpc.md")
	known := map[string]bool{}
	for c := problem.CodeInternal; c <= problem.CodeCanceled; c++ {
		s := problem.New(c, "", "").GRPCStatus()
		reason := s.Details()[0].(*errdetails.ErrorInfo).GetReason()
		known[reason] = true
		if row := "| " + quoted(reason) + " | " + code.Code(s.Code()).String() + " |"; !slices.Contains(ofREST, reason) && !strings.Contains(text, row) {
			t.Errorf("no row %s", row)
		}
	}
	for _, reason := range reasonsInCode(t) {
		known[reason] = true
		if !strings.Contains(text, reason) {
			t.Errorf("no %s", reason)
		}
	}
	for _, topic := range topics.All {
		for _, end := range []string{"_NOT_FOUND", "_DELETED"} {
			known[strings.ToUpper(topic.Aggregate)+end] = true
		}
	}
	for _, list := range regexp.MustCompile(`(?:Reasons of errors: |\(reason )([A-Z_,\s]+)`).FindAllStringSubmatch(text, -1) {
		for _, reason := range strings.FieldsFunc(list[1], func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') }) {
			if !known[reason] {
				t.Errorf("%s is in no code", reason)
			}
		}
	}
}

func reasonsInCode(t *testing.T) (reasons []string) {
	t.Helper()
	for _, pattern := range []string{"internal/*/*.go", "services/*/*.go", "services/*/*/*.go", "pkg/eventing/*/*.go"} {
		names, err := filepath.Glob("../../" + pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range literal.FindAllStringSubmatch(string(source), -1) {
				if !strings.HasSuffix(name, "_test.go") {
					reasons = append(reasons, m[1])
				}
			}
		}
	}
	if len(reasons) < 8 {
		t.Fatalf("found %q", reasons)
	}
	return reasons
}

// TestAttributesAreDocumented compares the attributes in docs/events.md with those of a message.
func TestAttributesAreDocumented(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "../../docs", "events.md"), "| attribute |")
	table, _, _ = strings.Cut(table, "\n\n")
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		got = append(got, row[1])
	}
	whole := eventing.Event{TraceParent: "of the request", PreviousEventID: uuid.Max}
	if want := slices.Sorted(maps.Keys(whole.Message().GetAttributes())); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("documented are %q, a message has %q", got, want)
	}
}
