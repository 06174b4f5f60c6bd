package rig

import (
	"os"
	"strings"
	"testing"
)

// The services of the bench run as those of the images do.
func TestImageIsTheDockerfile(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, stage, _ := strings.Cut(string(file), " AS service\n")
	stage, _, _ = strings.Cut(stage, "\nFROM ")
	var set []string
	for line := range strings.Lines(stage) {
		if value, ok := strings.CutPrefix(line, "ENV "); ok {
			set = append(set, strings.TrimSpace(value))
		}
	}
	if got := strings.Join(set, " "); got != strings.Join(Image, " ") {
		t.Errorf("the Dockerfile sets %q, the bench %q", got, Image)
	}
}
