package lockstep_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Generators make a Go type of each schema and of each response, a field of each parameter, and a type of each
// enumeration. oapi-codegen and ogen write code that does not compile where two of them have one name, or an
// enumeration has no type.
func TestOpenAPIHasOneNameForEachGoIdentifier(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("services/*/openapi.json")
	if err != nil || len(paths) < 2 {
		t.Fatalf("the documents are %v, %v", paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		components := doc["components"].(map[string]any)
		schemas, parameters := components["schemas"].(map[string]any), components["parameters"].(map[string]any)
		for name := range components["responses"].(map[string]any) {
			if schemas[name] != nil {
				t.Errorf("%s: %s is a schema and a response", path, name)
			}
		}
		eachObject(doc, func(o map[string]any) {
			if o["enum"] != nil && o["type"] == nil {
				t.Errorf("%s: the enumeration %v has no type", path, o["enum"])
			}
			list, _ := o["parameters"].([]any)
			seen := map[string]bool{}
			for _, p := range list {
				name := goName(p.(map[string]any), parameters)
				if seen[name] {
					t.Errorf("%s: two parameters of one operation are %s in Go", path, name)
				}
				seen[name] = true
			}
		})
	}
}

// goName returns the parameter's name as generators compare it: without its case, hyphens and underscores.
func goName(parameter, components map[string]any) string {
	if ref, ok := parameter["$ref"].(string); ok {
		parameter = components[filepath.Base(ref)].(map[string]any)
	}
	name, ok := parameter["x-go-name"].(string)
	if !ok {
		name = parameter["name"].(string)
	}
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// eachObject calls do with each object of a JSON document.
func eachObject(v any, do func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		do(v)
		for _, child := range v {
			eachObject(child, do)
		}
	case []any:
		for _, child := range v {
			eachObject(child, do)
		}
	}
}
