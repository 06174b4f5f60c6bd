package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// descriptions are Google's own descriptions of its services, which google.golang.org/api contains.
// Renovate raises that module, so a field that Google has removed fails TestRequestsAreDescribed.
var descriptions = map[string][]string{
	"artifactregistry": {"artifactregistry/v1/artifactregistry-api.json"},
	"cloudscheduler":   {"cloudscheduler/v1/cloudscheduler-api.json"},
	"iam":              {"iam/v1/iam-api.json"},
	"monitoring":       {"monitoring/v3/monitoring-api.json", "monitoring/v1/monitoring-api.json"},
	"pubsub":           {"pubsub/v1/pubsub-api.json"},
	"run":              {"run/v2/run-api.json"},
	"secretmanager":    {"secretmanager/v1/secretmanager-api.json"},
	"sqladmin":         {"sqladmin/v1beta4/sqladmin-api.json"},
}

// A description says which requests a service takes.
type description struct {
	collection
	Parameters map[string]any
	Schemas    map[string]schema
}

type collection struct {
	Methods   map[string]method
	Resources map[string]collection
}

type method struct {
	ID, HTTPMethod, Path, FlatPath string
	Parameters                     map[string]any
	Request                        schema
}

type schema struct {
	Ref                         string `json:"$ref"`
	Properties                  map[string]schema
	Items, AdditionalProperties *schema
	Enum                        []string
	ReadOnly                    bool
}

// A sent request is one of a file in requestsDir.
type sent struct {
	Method, Path string
	Query        map[string]string
	Body         any
}

func (c collection) all() []method {
	found := slices.Collect(maps.Values(c.Methods))
	for _, inner := range c.Resources {
		found = append(found, inner.all()...)
	}
	return found
}

var (
	version   = regexp.MustCompile(`^(sql/)?v\d\w*/`)
	parameter = regexp.MustCompile(`\\\{.*?\\\}`)
	snake     = regexp.MustCompile(`_[a-z]`)
)

// takes reports whether the method is that of the request.
func (m method) takes(r sent) bool {
	path := m.FlatPath
	if path == "" {
		path = m.Path
	}
	pattern := parameter.ReplaceAllString(regexp.QuoteMeta(version.ReplaceAllString(path, "")), `[^/]+`)
	return m.HTTPMethod == r.Method && regexp.MustCompile("^"+pattern+"$").MatchString(version.ReplaceAllString(r.Path, ""))
}

// undescribed returns what the descriptions do not have of a request.
func undescribed(of []description, r sent) []string {
	for _, d := range of {
		for _, m := range d.all() {
			if !m.takes(r) {
				continue
			}
			var faults []string
			for name := range r.Query {
				name = snake.ReplaceAllStringFunc(name, func(s string) string { return strings.ToUpper(s[1:]) })
				if m.Parameters[name] == nil && d.Parameters[name] == nil {
					faults = append(faults, m.ID+" has no parameter "+name)
				}
			}
			return append(faults, d.unknown(m.Request, r.Body, m.ID)...)
		}
	}
	return []string{fmt.Sprintf("there is no %s %s", r.Method, r.Path)}
}

// unknown returns the places of a value that the schema does not allow.
func (d description) unknown(s schema, value any, at string) []string {
	if s.Ref != "" {
		s = d.Schemas[s.Ref]
	}
	var faults []string
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			of, known := s.Properties[name]
			if s.AdditionalProperties != nil {
				of, known = *s.AdditionalProperties, true
			}
			if !known || of.ReadOnly {
				faults = append(faults, at+"."+name)
				continue
			}
			faults = append(faults, d.unknown(of, inner, at+"."+name)...)
		}
	case []any:
		if s.Items == nil {
			return []string{at + " is no list"}
		}
		for _, inner := range v {
			faults = append(faults, d.unknown(*s.Items, inner, at)...)
		}
	case string:
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
			faults = append(faults, at+" is not "+v)
		}
	}
	return faults
}

// describe reads the descriptions of a service.
func describe(t *testing.T, service string) []description {
	t.Helper()
	lab := filepath.Join(repository, "lab")
	answer, err := exec.CommandContext(t.Context(), "go", "-C", lab, "mod", "download", "-json", "google.golang.org/api").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	var module struct{ Dir string }
	decode(t, answer, &module)
	var found []description
	for _, name := range descriptions[service] {
		text, err := os.ReadFile(filepath.Join(module.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var d description
		decode(t, text, &d)
		found = append(found, d)
	}
	return found
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// TestRequestsAreDescribed compares the requests of a first apply with Google's own descriptions.
// Google refuses a request with an unknown field, and no real project has had these requests.
func TestRequestsAreDescribed(t *testing.T) {
	t.Parallel()
	files, err := readFiles(filepath.Join(repository, requestsDir))
	if err != nil || len(files) != len(descriptions) {
		t.Fatalf("%d services, want %d: %v", len(files), len(descriptions), err)
	}
	for name, text := range files {
		service := strings.TrimSuffix(name, ".json")
		var requests []sent
		decode(t, []byte(text), &requests)
		of := describe(t, service)
		for _, r := range requests {
			for _, fault := range undescribed(of, r) {
				t.Errorf("%s: %s", service, fault)
			}
		}
	}
}

// TestUndescribedRequestsAreFound has requests that Google does not take.
func TestUndescribedRequestsAreFound(t *testing.T) {
	t.Parallel()
	const pools = "projects/p/locations/l/workerPools"
	query := map[string]string{"worker_pool_id": "w"}
	scaling := func(field string, value any) any { return map[string]any{"scaling": map[string]any{field: value}} }
	of := describe(t, "run")
	for want, r := range map[string]sent{
		"":                         {Method: "POST", Path: pools, Query: query, Body: scaling("scalingMode", "MANUAL")},
		"there is no PUT " + pools: {Method: "PUT", Path: pools},
		"workerPools.create has no parameter poolId":    {Method: "POST", Path: pools, Query: map[string]string{"poolId": "w"}},
		"workerPools.create.scaling.mode":               {Method: "POST", Path: pools, Body: scaling("mode", "MANUAL")},
		"workerPools.create.scaling.scalingMode is not": {Method: "POST", Path: pools, Body: scaling("scalingMode", "BY_HAND")},
		"workerPools.create.template is no list":        {Method: "POST", Path: pools, Body: map[string]any{"template": []any{}}},
		"workerPools.create.uid":                        {Method: "POST", Path: pools, Body: map[string]any{"uid": "u"}},
	} {
		if got := strings.Join(undescribed(of, r), ", "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
