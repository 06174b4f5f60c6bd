package lockstep_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const license = "Apache-2.0" // as SPDX calls it

// TestLicenseIsNamed: LICENSE grants by reference, so that nothing but the identifier
// and the address of the text says which license it is.
func TestLicenseIsNamed(t *testing.T) {
	t.Parallel()
	for name, wants := range map[string][]string{
		"LICENSE":         {"SPDX-License-Identifier: " + license + "\n", "https://www.apache.org/licenses/LICENSE-2.0\n"},
		"README.md":       {license},
		"CONTRIBUTING.md": {license},
	} {
		text := readFile(t, name)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
	}
	// An image's stages inherit the label from the stage that begins with the base.
	for _, stage := range strings.Split(readFile(t, "Dockerfile"), "\nFROM ")[1:] {
		if strings.HasPrefix(stage, "${BASE_IMAGE} ") && !strings.Contains(stage, `org.opencontainers.image.licenses="`+license+`"`) {
			t.Errorf("Dockerfile: images from this stage have no license:\n%s", stage)
		}
	}
}

// kinds are a sentence of each kind of license that a module of an image may have. Those of the Mozilla Public
// License bind changes of their own files only. Another kind, such as the GNU GPL, would bind the services.
var kinds = []string{
	"Apache License", "Mozilla Public License", "Permission is hereby granted, free of charge",
	"Redistribution and use in source and binary forms", "have been put into the public domain",
}

// TestImagesHaveLicenses copies the licenses as the Dockerfile does, in every stage that an image is made of.
func TestImagesHaveLicenses(t *testing.T) {
	t.Parallel()
	dockerfile, images := readFile(t, "Dockerfile"), 0
	for _, stage := range strings.Split(dockerfile, "\nFROM ")[1:] {
		if !strings.Contains(stage, "\nENTRYPOINT ") {
			continue
		}
		images++
		if !strings.Contains(stage, " /out/licenses /licenses\n") {
			t.Errorf("Dockerfile: images from this stage have no /licenses:\n%s", stage)
		}
	}
	copies := regexp.MustCompile(`(\S*deploy/licenses\.sh) /out/licenses (.*)`).FindAllStringSubmatch(dockerfile, -1)
	if images < 4 || len(copies) != 2 {
		t.Fatalf("%d images, %d copies of licenses", images, len(copies))
	}
	for _, c := range copies {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{c[1], dir}, strings.Fields(c[2])...)...)
		if strings.HasPrefix(c[1], "../") {
			cmd.Dir = "localpubsub"
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c[0], err, out)
		}
		checkKinds(t, dir)
	}
}

// checkKinds checks the files in dir whose names begin with "licen", in letters of either case.
func checkKinds(t *testing.T, dir string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(strings.ToUpper(entry.Name()), "LICEN") {
			return err
		}
		found++
		text := strings.Join(strings.Fields(readFile(t, name)), " ")
		if !slices.ContainsFunc(kinds, func(kind string) bool { return strings.Contains(text, kind) }) {
			t.Errorf("%s is of no known kind:\n%.300s", strings.TrimPrefix(name, dir), text)
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("%d licenses, %v", found, err)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
