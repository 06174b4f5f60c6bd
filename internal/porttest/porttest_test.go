package porttest_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"example.com/lockstep/internal/porttest"
)

const (
	// many ports take more than one block.
	many = 250
	// another is the environment variable of a second process, in which the test prints its
	// ports.
	another = "PORTTEST_ANOTHER"
)

// TestNoPortTwice: a port is free, and no test gets the same one, in two processes at the
// same time.
func TestNoPortTwice(t *testing.T) {
	t.Parallel()
	if os.Getenv(another) != "" {
		for range many {
			fmt.Fprintln(os.Stdout, "port", porttest.Addr(t))
		}
		return
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoPortTwice$")
	command.Env = append(os.Environ(), another+"=1")
	seen := map[string]bool{}
	for range many {
		addr := porttest.Addr(t)
		if seen[addr] {
			t.Errorf("%s twice", addr)
		}
		seen[addr] = true
		lis, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		lis.Close()
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	others := 0
	for line := range strings.Lines(string(out)) {
		if addr, ok := strings.CutPrefix(strings.TrimSpace(line), "port "); ok {
			others++
			if seen[addr] {
				t.Errorf("%s in two processes", addr)
			}
		}
	}
	if others != many {
		t.Errorf("the other process had %d ports, want %d: %s", others, many, out)
	}
}
