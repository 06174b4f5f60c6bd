// Package attack is test support. It has the targets of fuzzing that both services share,
// and it measures the memory that one request can make a service allocate: over gRPC for
// each field of each request message, over REST for each route. Both are found, not
// listed: a new RPC and a new route are attacked without a new test.
//
// The figure is all that the process allocates for the request, the client's part
// included. The heap of n requests at once is at most n times as large. Nothing else
// may run in the process meanwhile, so a test that calls this package must not be
// parallel.
package attack

import (
	"runtime"
	"testing"
)

// repeats is the number of requests that a figure above the limit is the mean of.
const repeats = 4

// allocates is the mean of the bytes that a call of send allocates.
func allocates(calls int, send func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		send()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(calls)
}

// judge fails the test if a request allocates more than most bytes. The first call also
// fills pools and caches, so that its figure is an upper bound: only one above the limit is
// measured again.
func judge(t testing.TB, request string, most uint64, send func()) {
	t.Helper()
	if allocates(1, send) <= most {
		return
	}
	if got := allocates(repeats, send); got > most {
		t.Errorf("%s allocates %d KiB, want at most %d", request, got>>10, most>>10)
	}
}
