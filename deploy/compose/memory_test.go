package compose_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestMemoryIsAsInTheCloud: a process that is killed for its memory on Cloud Run is killed here, too.
// The module gives a service 512 MiB by default, and Go's runtime nine tenths of that.
func TestMemoryIsAsInTheCloud(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("../terraform/variables_services.tf")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	defaults := regexp.MustCompile(`memory += optional\(string, "(\d+)Mi"\)`).FindAllSubmatch(module, -1)
	if len(defaults) != 2 || !bytes.Equal(defaults[0][1], defaults[1][1]) {
		t.Fatalf("the module's defaults are %q, want one for both services", defaults)
	}
	mib, _ := strconv.Atoi(string(defaults[0][1])) // digits only
	for _, anchor := range []string{
		fmt.Sprintf("x-memory: &memory\n  mem_limit: %dm\n", mib),
		fmt.Sprintf("x-memory-of-go: &memory-of-go\n  GOMEMLIMIT: %dMiB\n", mib*9/10),
	} {
		if !strings.Contains(string(text), anchor) {
			t.Errorf("docker-compose.yml has not %q", anchor)
		}
	}
	for _, service := range []string{"video", "catalog"} {
		_, block, _ := strings.Cut(string(text), "\n  "+service+":\n")
		block, _, _ = strings.Cut(block, "\n\n")
		if !strings.Contains(block, ", *memory]\n") || !strings.Contains(block, ", *memory-of-go]\n") {
			t.Errorf("%s has not the memory of the module's default:\n%s", service, block)
		}
	}
}
