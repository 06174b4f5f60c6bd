// Package attack is test support for fuzzing and for limits of memory. It has the fuzz targets that
// both services share. It also measures the memory that one request can make a service allocate.
// Over gRPC it sends requests for each field of each request message, and over REST for each route.
// The package finds the fields and the routes itself, so a new RPC or a new route needs no new
// test.
//
// The measured figure counts everything that the process allocates during a request. The figure
// includes the part of the client, which runs in the same process. So n requests at once need at
// most n times as much heap as one request. Nothing else may run in the process during a
// measurement, so a test that calls this package must not be parallel.
package attack

import (
	"runtime"
	"testing"
)

// repeats is how many times a request is sent again if its first figure is above the limit. judge
// then compares the mean of the repeats with the limit.
const repeats = 4

// allocates returns the mean number of bytes that a call of send allocates.
func allocates(calls int, send func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		send()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(calls)
}

// judge fails the test if a request allocates more bytes than the limit most. The first call also
// fills pools and caches, so its figure is an upper bound. judge measures a request again only if
// the first figure is above the limit.
func judge(t testing.TB, request string, most uint64, send func()) {
	t.Helper()
	if allocates(1, send) <= most {
		return
	}
	if got := allocates(repeats, send); got > most {
		t.Errorf("%s allocates %d KiB, want at most %d", request, got>>10, most>>10)
	}
}
