// Package lockstep_test checks the repository's own rules: which package may import
// which, and where SQL may be. A rule is data with its reason, and a failure prints
// both.
package lockstep_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// An importRule forbids a package that matches the pattern from to import one that matches
// the pattern to. Paths are relative to the module. If both patterns have a group, packages
// with the same value of the group may import each other: "services/video" and all below it
// is one service.
type importRule struct {
	from, to *regexp.Regexp
	// tests says that test files are bound too.
	tests  bool
	reason string
}

var importRules = []importRule{
	{
		from: regexp.MustCompile(`^services/([^/]+)`), to: regexp.MustCompile(`^services/([^/]+)`), tests: true,
		reason: "services share proto/ and pkg/eventing only, as those of two teams would",
	},
	{
		from: regexp.MustCompile(`^pkg/eventing`), to: regexp.MustCompile(`^(services|proto)/`), tests: true,
		reason: "pkg/eventing carries events and knows nothing about videos",
	},
	{
		from: regexp.MustCompile(`^(pkg/eventing|internal/(history|local)|internal/pgtest$)`),
		to:   regexp.MustCompile(`^(migrations|internal/pgtest/pairtest)`), tests: true,
		reason: "pkg/eventing has its own tables, and its tests need none of a service, directly or through what they use",
	},
	{
		from: regexp.MustCompile(`^pkg/`), to: regexp.MustCompile(`^(internal|cmd|migrations)`),
		reason: "what stands in pkg/ can be lifted out of this repository",
	},
	{
		from: regexp.MustCompile(`^pkg/eventing/(outbox|inbox)`), to: regexp.MustCompile(`^pkg/eventing/(outbox|inbox)`), tests: true,
		reason: "a service that only sends, or only receives, takes its half alone",
	},
	{
		from: regexp.MustCompile(`^(localpubsub)`), to: regexp.MustCompile(`^(localpubsub|.*)`), tests: true,
		reason: "a stand-in for the broker that knew the code under test would agree with its mistakes",
	},
	{
		from: regexp.MustCompile(`^(services|pkg)/`), to: regexp.MustCompile(`^localpubsub`),
		reason: "a deployment uses Google's Pub/Sub",
	},
	{
		from: regexp.MustCompile(`^internal/`), to: regexp.MustCompile(`^(services|cmd)/`), tests: true,
		reason: "internal/ is what services stand on; the other way round is a cycle of ideas",
	},
	{
		from: regexp.MustCompile(`^(internal/pgtest)?`), to: regexp.MustCompile(`^(internal/(?:attack|authtest|history|pgtest|porttest|pubsubtest))`),
		reason: "test support imports testing or the local broker, which a binary must not carry",
	},
	{
		from: regexp.MustCompile(`^(services|migrations)`), to: regexp.MustCompile(`^cmd/`), tests: true,
		reason: "cmd/ holds the developers' tools, which a deployment does not contain",
	},
	// fork: leave out
	{
		from: regexp.MustCompile(`^(lab)?`), to: regexp.MustCompile(`^(lab)`), tests: true,
		reason: "lab is about the pair, and a fork of the pair does without it",
	},
	{
		from:  regexp.MustCompile(`^lab/bench/(localpubsub|outbox|inbox|visible|reads|start)`),
		to:    regexp.MustCompile(`^lab/bench/(localpubsub|outbox|inbox|visible|reads|start)`),
		tests: true, reason: "each subject of the bench is read alone; what two of them need is part of its rig",
	},
	{
		from:  regexp.MustCompile(`^lab/bench/(measure|report|rig)$`),
		to:    regexp.MustCompile(`^lab/bench/(localpubsub|outbox|inbox|visible|reads|start)`),
		tests: true, reason: "what measures knows nothing about what is measured",
	},
	// fork: go on
}

// sqlHomes match the files that may contain SQL; test files may contain it anywhere.
var sqlHomes = map[string]*regexp.Regexp{
	"the store of a service, so that all SQL of a package is read in one place": regexp.MustCompile(`^services/([^/]+/)+store(_\w+)?\.go$`),
	"pkg/eventing, whose subject are two tables":                                regexp.MustCompile(`^pkg/eventing/`),
	"migrations, which make the tables":                                         regexp.MustCompile(`^migrations/`),
	"what creates databases for tests and for make run":                         regexp.MustCompile(`^internal/(pgtest|local/postgres)/`),
	"internal/idempotency, whose subject is a table":                            regexp.MustCompile(`^internal/idempotency/store\.go$`),
	"developers' tools": regexp.MustCompile(`^(cmd|lab|internal/walk)/`),
}

const docReason = "a package's contract stands in one place, which go doc shows"

func TestBoundaries(t *testing.T) {
	t.Parallel()
	files := repository(t)
	for _, check := range []func([]file) []string{
		forbiddenImports, strayedSQL, missingDocs, assignable,
	} {
		for _, complaint := range check(files) {
			t.Error(complaint)
		}
	}
}

func forbiddenImports(files []file) (complaints []string) {
	for _, f := range files {
		for _, imported := range f.imports {
			for _, rule := range importRules {
				if rule.forbids(f, imported) {
					complaints = append(complaints, fmt.Sprintf("%s imports %s: %s", f.name, imported, rule.reason))
				}
			}
		}
	}
	return complaints
}

func (r importRule) forbids(f file, imported string) bool {
	from, to := r.from.FindStringSubmatch(f.dir()), r.to.FindStringSubmatch(imported)
	if from == nil || to == nil || f.test && !r.tests {
		return false
	}
	sameGroup := len(from) > 1 && len(to) > 1 && from[1] == to[1]
	return !sameGroup
}

func strayedSQL(files []file) (complaints []string) {
	for _, f := range files {
		if f.test || len(f.sql) == 0 || hasHomeForSQL(f.name) {
			continue
		}
		complaints = append(complaints, fmt.Sprintf("%s holds SQL (%.40q), which stands in: %s", f.name, f.sql[0], homesOfSQL()))
	}
	return complaints
}

func hasHomeForSQL(name string) bool {
	for _, home := range sqlHomes {
		if home.MatchString(name) {
			return true
		}
	}
	return false
}

func homesOfSQL() string {
	var homes []string
	for home := range sqlHomes {
		homes = append(homes, home)
	}
	return strings.Join(homes, "; ")
}

// missingDocs requires one package comment for each package with hand-written code.
func missingDocs(files []file) (complaints []string) {
	docs := make(map[string][]string)
	for _, f := range files {
		if f.test || f.generated {
			continue
		}
		documented := docs[f.dir()]
		if f.doc {
			documented = append(documented, f.name)
		}
		docs[f.dir()] = documented
	}
	for dir, documented := range docs {
		if len(documented) != 1 {
			complaints = append(complaints, fmt.Sprintf("package %s has %d package comments %v, want one: %s",
				dir, len(documented), documented, docReason))
		}
	}
	return complaints
}

const assignableReason = "every importer could overwrite it for all others; let a function return it"

// assignable finds exported variables in pkg/, other than errors, whose names begin with Err by Go's custom.
func assignable(files []file) (complaints []string) {
	for _, f := range files {
		if f.test || f.generated || !strings.HasPrefix(f.name, "pkg/") {
			continue
		}
		for _, name := range f.variables {
			if !strings.HasPrefix(name, "Err") {
				complaints = append(complaints, fmt.Sprintf("%s has the exported variable %s: %s", f.name, name, assignableReason))
			}
		}
	}
	return complaints
}

// TestBoundaryViolationsAreFound gives each check a violation, which it must find, and the most
// similar allowed case, which it must accept.
func TestBoundaryViolationsAreFound(t *testing.T) {
	t.Parallel()
	imports := func(name, imported string) []file {
		return []file{{name: name, test: strings.HasSuffix(name, "_test.go"), imports: []string{imported}}}
	}
	sql := []string{"SELECT 1"}
	for name, test := range map[string]struct {
		check func([]file) []string
		files []file
		want  int
	}{
		"service imports another":         {forbiddenImports, imports("services/video/video.go", "services/catalog"), 1},
		"command imports another service": {forbiddenImports, imports("services/catalog/cmd/catalog/main.go", "services/video"), 1},
		"service's test imports another":  {forbiddenImports, imports("services/video/video_test.go", "services/catalog"), 1},
		"command imports its service":     {forbiddenImports, imports("services/video/cmd/video/main.go", "services/video"), 0},
		"system test imports services":    {forbiddenImports, imports("services/system_test.go", "services/video"), 0},
		"eventing imports proto":          {forbiddenImports, imports("pkg/eventing/event.go", "proto/video/v1"), 1},
		"eventing imports internal":       {forbiddenImports, imports("pkg/eventing/event.go", "internal/serve"), 1},
		"eventing's test imports pgtest":  {forbiddenImports, imports("pkg/eventing/event_test.go", "internal/pgtest"), 0},
		"eventing's test: pairtest":       {forbiddenImports, imports("pkg/eventing/outbox/x_test.go", "internal/pgtest/pairtest"), 1},
		"eventing's test: migrations":     {forbiddenImports, imports("pkg/eventing/outbox/x_test.go", "migrations"), 1},
		"pgtest imports migrations":       {forbiddenImports, imports("internal/pgtest/cluster.go", "migrations"), 1},
		"pairtest imports migrations":     {forbiddenImports, imports("internal/pgtest/pairtest/pairtest.go", "migrations"), 0},
		"outbox imports inbox":            {forbiddenImports, imports("pkg/eventing/outbox/relay.go", "pkg/eventing/inbox"), 1},
		"inbox imports eventing":          {forbiddenImports, imports("pkg/eventing/inbox/consumer.go", "pkg/eventing"), 0},
		"localpubsub imports eventing":    {forbiddenImports, imports("localpubsub/server.go", "pkg/eventing"), 1},
		"localpubsub imports itself":      {forbiddenImports, imports("localpubsub/server_test.go", "localpubsub"), 0},
		"eventing imports localpubsub":    {forbiddenImports, imports("pkg/eventing/event.go", "localpubsub"), 1},
		"its test imports localpubsub":    {forbiddenImports, imports("pkg/eventing/event_test.go", "localpubsub"), 0},
		"a binary imports a checker":      {forbiddenImports, imports("cmd/dev/run.go", "internal/history"), 1},
		"pgtest imports a checker":        {forbiddenImports, imports("internal/pgtest/pgtest.go", "internal/history"), 1},
		"a package imports pairtest":      {forbiddenImports, imports("internal/walk/walk.go", "internal/pgtest/pairtest"), 1},
		"a test imports a checker":        {forbiddenImports, imports("services/video/cost_test.go", "internal/attack"), 0},
		"pairtest imports pgtest":         {forbiddenImports, imports("internal/pgtest/pairtest/pairtest.go", "internal/pgtest"), 0},
		"internal imports a service":      {forbiddenImports, imports("internal/serve/serve.go", "services/video"), 1},
		// fork: leave out
		"a service imports lab":          {forbiddenImports, imports("services/video/video_test.go", "lab/fakegcp"), 1},
		"the root imports lab":           {forbiddenImports, imports("root_test.go", "lab/fakegcp"), 1},
		"lab imports lab":                {forbiddenImports, imports("lab/terraform/check.go", "lab/fakegcp"), 0},
		"a subject imports another":      {forbiddenImports, imports("lab/bench/visible/pipeline.go", "lab/bench/outbox"), 1},
		"a subject imports the rig":      {forbiddenImports, imports("lab/bench/outbox/outbox.go", "lab/bench/rig"), 0},
		"the rig imports a subject":      {forbiddenImports, imports("lab/bench/rig/relays.go", "lab/bench/outbox"), 1},
		"the bench imports its subjects": {forbiddenImports, imports("lab/bench/main.go", "lab/bench/inbox"), 0},
		// fork: go on
		"SQL in a handler":            {strayedSQL, []file{{name: "services/video/rest.go", sql: sql}}, 1},
		"SQL in the store":            {strayedSQL, []file{{name: "services/video/store.go", sql: sql}}, 0},
		"SQL in an aggregate's store": {strayedSQL, []file{{name: "services/video/engagement/store.go", sql: sql}}, 0},
		"a variable for importers":    {assignable, []file{{name: "pkg/a/a.go", variables: []string{"All"}}}, 1},
		"an error for importers":      {assignable, []file{{name: "pkg/a/a.go", variables: []string{"ErrGone"}}}, 0},
		"a variable of a service":     {assignable, []file{{name: "services/video/video.go", variables: []string{"All"}}}, 0},
		"no package comment":          {missingDocs, []file{{name: "a/a.go"}}, 1},
		"two package comments":        {missingDocs, []file{{name: "a/a.go", doc: true}, {name: "a/b.go", doc: true}}, 1},
		"one package comment":         {missingDocs, []file{{name: "a/a.go", doc: true}, {name: "a/b.go"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.check(test.files); len(got) != test.want {
				t.Errorf("complaints = %q, want %d", got, test.want)
			}
		})
	}
}
