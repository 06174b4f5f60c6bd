package porttest_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
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

// TestAPortIsFreeWhileProcessesStart: no process that starts at the time holds a port that Addr
// returns. Between its fork and its exec it has a copy of each open listener.
func TestAPortIsFreeWhileProcessesStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			for ctx.Err() == nil {
				if err := exec.CommandContext(ctx, os.Args[0], "-test.run=^$").Run(); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer starts.Wait()
	defer cancel()
	for range many {
		lis, err := net.Listen("tcp", porttest.Addr(t))
		if err != nil {
			t.Fatal(err)
		}
		lis.Close()
	}
}
