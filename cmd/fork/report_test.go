package main

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"
)

// TestKindsOfPackages: the imports decide, not the names.
func TestKindsOfPackages(t *testing.T) {
	t.Parallel()
	const m = "example.org/farm"
	got := kindsOfPackages([]goPackage{
		{ImportPath: m, Name: "farm"},
		{ImportPath: m + "/services/orchard/cmd/orchard", Name: "main", Imports: []string{m + "/services/orchard", "os"}},
		{ImportPath: m + "/services/orchard", Imports: []string{m + "/internal/shed", m + "/pkg/seed"}},
		{ImportPath: m + "/services", Name: "services"},
		{ImportPath: m + "/internal/shed", Imports: []string{m + "/internal/tools"}},
		{ImportPath: m + "/internal/tools"},
		{ImportPath: m + "/cmd/plough", Name: "main", Imports: []string{m + "/internal/tools", m + "/internal/horse"}},
		{ImportPath: m + "/internal/horse"},
		{ImportPath: m + "/internal/scarecrow", Imports: []string{m + "/internal/straw", "testing"}},
		{ImportPath: m + "/internal/straw"},
		{ImportPath: m + "/pkg/seed"},
		{ImportPath: m + "/pkg/client"},
	}, m)
	want := map[string]string{
		m: forTests, "services": forTests, "internal/scarecrow": forTests, "internal/straw": forTests,
		"services/orchard/cmd/orchard": inServices, "services/orchard": inServices, "internal/shed": inServices, "internal/tools": inServices,
		"cmd/plough": inCommands, "internal/horse": inCommands, "pkg/seed": inLibrary, "pkg/client": inLibrary,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	code := []byte("package a\n\n// a comment\nfunc a() {} // and code\n")
	var out bytes.Buffer
	report(&out, "dir", 3*time.Second, []file{
		{name: "services/orchard/a.go", content: code}, {name: "services/orchard/a_test.go", content: code},
		{name: "services/orchard/b.go", content: code}, {name: "internal/straw/a.go", content: code},
		{name: "proto/a.pb.go", content: code}, {name: "localpubsub/a.go", content: code},
		{name: "a.sql", content: []byte("SELECT;\n")}, {name: "docs/a.png", content: []byte("\x00\n")}, {name: "Makefile", content: code},
	}, map[string]string{"services/orchard": inServices, "internal/straw": forTests, "proto": inServices})
	for _, want := range []string{
		inServices + " 2 4", inLibrary + " 0 0", forTests + " 2 4", "generated 1 2", "local Pub/Sub, its own module 1 2", "SQL 1 1",
		"documents 1 0", otherFiles + " 1 4", "all 9 17 in 3 s",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " ")+" ", want+" ") {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}
