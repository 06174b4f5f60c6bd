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
// file or folder does not have.
var place = regexp.MustCompile("(?m)^\\| (\\d+) \\| \\[[^]]+\\]\\(\\.\\./([^)]+)\\) \\|.*\\| (?:`([^`]+)`)? ?\\|$")

// The most places, and files, that a new field may take.
const maxPlaces, maxPlaceFiles = 24, 12

// commentLine is a line that has only a comment.
var commentLine = regexp.MustCompile(`(?m)^\s*(//|--|#).*$`)

// TestAdaptGuide finds each place of the guide by its anchor. Each chapter counts right. The
// first has every file that names a field of the same kind, the second every file that names
// an aggregate of the same kind.
func TestAdaptGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("docs/adapt.md")
	if err != nil {
		t.Fatal(err)
	}
	chapters := strings.Split(string(guide), "\n## ")[1:]
	if len(chapters) < 2 {
		t.Fatalf("%d chapters", len(chapters))
	}
	var listed []map[string]bool
	for _, chapter := range chapters {
		listed = append(listed, checkChapter(t, chapter))
	}
	if n := len(place.FindAllString(chapters[0], -1)); n > maxPlaces || len(listed[0]) > maxPlaceFiles {
		t.Errorf("%d places in %d files, at most %d in %d", n, len(listed[0]), maxPlaces, maxPlaceFiles)
	}
	code := []string{"services/*/*", "services/*/*/*.go", "proto/*/*/*.proto", "proto/*/*/*/*.proto"}
	// A field duration_seconds is in no other message.
	checkComplete(t, listed[0], code, "duration_seconds", "DurationSeconds")
	checkComplete(t, listed[1], append(code, "services/*/cmd/*/*", "internal/*/*/*.go", "deploy/terraform/*.tf", "deploy/terraform/tests/*"),
		"engagement", "Engagement")
}

// checkChapter finds a chapter's places, and returns their files and folders.
func checkChapter(t *testing.T, chapter string) (listed map[string]bool) {
	t.Helper()
	title, _, _ := strings.Cut(chapter, "\n")
	places := place.FindAllStringSubmatch(chapter, -1)
	listed = map[string]bool{}
	for i, m := range places {
		number, name, anchor := m[1], m[2], m[3]
		listed[name] = true
		if number != strconv.Itoa(i+1) {
			t.Errorf("%s: place %s stands as number %d", title, number, i+1)
		}
		if found, err := occurrences(name, anchor); err != nil || found != 1 {
			t.Errorf("%s: place %s: %q is %d times in %s (%v), want once", title, number, anchor, found, name, err)
		}
	}
	if said := fmt.Sprintf("%d places in %d files", len(places), len(listed)); !strings.Contains(strings.ReplaceAll(chapter, "\n", " "), said) {
		t.Errorf("%s: the chapter does not say %q", title, said)
	}
	return listed
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

// checkComplete requires that the files of the patterns that have one of words outside of
// comments are listed, or their folder is.
func checkComplete(t *testing.T, listed map[string]bool, patterns []string, words ...string) {
	t.Helper()
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			if !listedIn(listed, name) && !strings.HasSuffix(name, "_test.go") && mentions(t, name, words) {
				t.Errorf("%s names %s, and the guide does not have it", name, words[0])
			}
		}
	}
}

func listedIn(listed map[string]bool, name string) bool {
	for ; name != "."; name = filepath.Dir(name) {
		if listed[name] {
			return true
		}
	}
	return false
}

func mentions(t *testing.T, name string, words []string) bool {
	t.Helper()
	if info, err := os.Stat(name); err != nil || info.IsDir() {
		return false
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	code := commentLine.ReplaceAllString(string(text), "")
	for _, word := range words {
		if strings.Contains(code, word) {
			return true
		}
	}
	return false
}
