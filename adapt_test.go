package lockstep_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// place is a row of a table in docs/adapt.md: number, file, edit and anchor, which a new
// file does not have.
var place = regexp.MustCompile("(?m)^\\| (\\d+) \\| \\[[^]]+\\]\\(\\.\\./([^)]+)\\) \\|.*\\| (?:`([^`]+)`)? ?\\|$")

// The most places, and files, that a new field may take.
const maxPlaces, maxPlaceFiles = 24, 12

// TestAdaptGuide finds each place of the guide by its anchor. The guide has every file
// that names a field of the same kind, and counts right.
func TestAdaptGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("docs/adapt.md")
	if err != nil {
		t.Fatal(err)
	}
	places, listed := place.FindAllStringSubmatch(string(guide), -1), map[string]bool{}
	for i, m := range places {
		number, name, anchor := m[1], m[2], m[3]
		listed[name] = true
		if number != strconv.Itoa(i+1) {
			t.Errorf("place %s stands as number %d", number, i+1)
		}
		if found, err := occurrences(name, anchor); err != nil || found != 1 {
			t.Errorf("place %s: %q is %d times in %s (%v), want once", number, anchor, found, name, err)
		}
	}
	if said := fmt.Sprintf("%d places in %d files", len(places), len(listed)); !strings.Contains(string(guide), said) {
		t.Errorf("the guide does not say %q", said)
	}
	if len(places) > maxPlaces || len(listed) > maxPlaceFiles {
		t.Errorf("%d places in %d files, at most %d in %d", len(places), len(listed), maxPlaces, maxPlaceFiles)
	}
	for _, pattern := range []string{"services/*/*", "services/*/*/*.go", "proto/*/*/*.proto", "proto/*/*/*/*.proto"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			if !listed[name] && !strings.HasSuffix(name, "_test.go") && namesAField(t, name) {
				t.Errorf("%s names a field of a video, and the guide does not have it", name)
			}
		}
	}
}

// occurrences counts an anchor in a file; a new file has none, and needs its folder.
func occurrences(name, anchor string) (int, error) {
	if anchor == "" {
		entries, err := os.ReadDir(name)
		return min(len(entries), 1), err
	}
	text, err := os.ReadFile(name)
	return strings.Count(string(text), anchor), err
}

// namesAField looks for the field duration_seconds, which no other message has.
func namesAField(t *testing.T, name string) bool {
	t.Helper()
	if info, err := os.Stat(name); err != nil || info.IsDir() {
		return false
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "duration_seconds") || strings.Contains(string(text), "DurationSeconds")
}
