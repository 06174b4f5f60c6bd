package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/lab/fakegcp"
)

// requestsDir has the requests to Google Cloud of a first apply, in one file for each service.
const requestsDir = "lab/terraform/testdata/requests"

// sameRequests compares the requests with the files in requestsDir. If update is true, it writes
// the files instead.
func sameRequests(requests []fakegcp.Request, update bool) (string, error) {
	got, err := requestFiles(requests)
	if err != nil {
		return "", err
	}
	if update {
		return fmt.Sprintf("%d files written", len(got)), writeFiles(requestsDir, got)
	}
	want, err := readFiles(requestsDir)
	if err != nil {
		return "", err
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(union(got, want))) {
		if diff := cmp.Diff(strings.Split(want[name], "\n"), strings.Split(got[name], "\n")); diff != "" {
			wrong = append(wrong, fmt.Errorf("%s/%s: (-want +got; `make tf-e2e ARGS=-update` takes it over)\n%s", requestsDir, name, diff))
		}
	}
	return fmt.Sprintf("%d services, as in %s", len(got), requestsDir), errors.Join(wrong...)
}

// requestFiles returns the requests as files for requestsDir. It leaves out grants, because
// Terraform reads, changes and writes them in any order.
func requestFiles(requests []fakegcp.Request) (map[string]string, error) {
	byService := map[string][]string{}
	for _, request := range requests {
		if strings.HasSuffix(request.Path, ":setIamPolicy") {
			continue
		}
		normalise(request.Body)
		text, err := json.MarshalIndent(request, "  ", "  ")
		if err != nil {
			return nil, err
		}
		byService[request.API] = append(byService[request.API], string(text))
	}
	files := map[string]string{}
	for service, texts := range byService {
		slices.Sort(texts) // Terraform creates them concurrently
		files[service+".json"] = "[\n  " + strings.Join(texts, ",\n  ") + "\n]\n"
	}
	return files, nil
}

// hidden maps the name of a field to the text that replaces its value in the files.
var hidden = map[string]string{
	"runExecutionToken": "another each time", "migration": "another each time", "definition": "a file of deploy/schemas",
}

// normalise replaces values that differ in each run or are kept in another place. It also sorts
// lists that have no order.
func normalise(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, instead := range hidden {
			if v[name] != nil {
				v[name] = "(" + instead + ")"
			}
		}
		if env, ok := v["env"].([]any); ok {
			slices.SortFunc(env, func(a, b any) int { return strings.Compare(variableName(a), variableName(b)) })
		}
		for _, inner := range v {
			normalise(inner)
		}
	case []any:
		for _, inner := range v {
			normalise(inner)
		}
	}
}

func variableName(variable any) string {
	fields, _ := variable.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func readFiles(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		files[entry.Name()] = string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
		return err
	})
	return files, err
}

func writeFiles(dir string, files map[string]string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
