package lockstep_test

import (
	"os"
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

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
