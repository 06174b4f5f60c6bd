package catalog

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

// manyWaiters is the number of readers that wait at once, each for a video of its own.
const manyWaiters = 10_000

// used is the number of bytes in heap and stacks.
func used() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// busy reports whether no more may wait.
func (f *fixture) busy(t testing.TB) bool {
	t.Helper()
	id := newVideoID()
	_, err := f.service.Get(t.Context(), everyone, id, require(t, id, 1, time.Microsecond))
	return problem.From(err).Code == problem.CodeTooMany
}

// TestTenThousandWaiters fills every place. Reads that need not wait are served as
// usual, one more reader that wants to wait is refused, and a drain ends all waits.
func TestTenThousandWaiters(t *testing.T) {
	f := setUpWith(t, manyWaiters)
	f.peer.fails(status.Error(codes.Unavailable, "away")) // for readers that get a place all the same
	f.peer.asked = nil
	id := newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	before := used()
	var readers sync.WaitGroup
	var early atomic.Int64
	drained := make(chan struct{})
	for range manyWaiters {
		wanted := position(newVideoID(), 1)
		readers.Go(func() {
			ok, err := f.waiters.Wait(t.Context(), wanted)
			for errors.Is(err, consistency.ErrTooManyWaiters) { // busy took the place
				ok, err = f.waiters.Wait(t.Context(), wanted)
			}
			if ok || err != nil {
				t.Errorf("Wait = %t, %v", ok, err)
			}
			select {
			case <-drained:
			default:
				early.Add(1)
			}
		})
	}
	eventually(t, func() bool { return f.busy(t) })
	each := (used() - before) / manyWaiters
	if each > 8<<10 {
		t.Errorf("a waiter costs %d bytes", each)
	}
	t.Logf("%d waiters, %d bytes each; a read at that time takes %s", manyWaiters, each, f.readTime(t, id))
	_, err := f.service.Get(t.Context(), everyone, id, require(t, id, 2, long))
	if p := wantProblem(t, err, problem.CodeTooMany, "TOO_MANY_WAITERS"); p.RetryAfter <= 0 {
		t.Error("no Retry-After")
	}
	close(drained)
	f.waiters.Drain()
	readers.Wait()
	if n := early.Load(); n > 0 {
		t.Errorf("%d waits ended before the drain", n)
	}
}

// readTime is the median time of a read without a wait.
func (f *fixture) readTime(t testing.TB, id uuid.UUID) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 101 {
		began := time.Now()
		if _, _, err := f.get(t.Context(), id, consistency.Requirement{}); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// TestTenThousandWaitersOverTheWire is the same with connections, in the full form:
// each reader makes a call, and repeats it when its ten seconds are over.
func TestTenThousandWaitersOverTheWire(t *testing.T) {
	if os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("LOCKSTEP_FULL=1 takes the full measure")
	}
	f := setUpWith(t, manyWaiters)
	f.peer.fails(status.Error(codes.Unavailable, "away"))
	f.peer.asked = nil
	id := newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	addr := f.listen(t)
	var clients []catalogv1.CatalogServiceClient
	for range manyWaiters / 200 { // net/http allows 250 calls on a connection
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		clients = append(clients, catalogv1.NewCatalogServiceClient(conn))
	}
	before := used()
	var readers sync.WaitGroup
	var drained atomic.Bool
	answers := make([]atomic.Int64, 20)
	for n := range manyWaiters {
		readers.Go(func() {
			for !drained.Load() {
				video := newVideoID()
				_, err := clients[n%len(clients)].GetVideo(t.Context(), &catalogv1.GetVideoRequest{
					VideoId: video.String(), AtLeastAsFresh: token(video, 1), Wait: durationpb.New(consistency.MaxWait),
				})
				answers[status.Code(err)].Add(1)
			}
		})
	}
	eventually(t, func() bool { return f.busy(t) })
	t.Logf("%d waiters, %d bytes each with both ends of their connections; a read at that time takes %s",
		manyWaiters, (used()-before)/manyWaiters, f.readTime(t, id))
	drained.Store(true)
	began := time.Now()
	f.waiters.Drain()
	readers.Wait()
	t.Logf("all released within %s", time.Since(began))
	for code := range answers {
		if n := answers[code].Load(); n > 0 {
			t.Logf("%6d answered %s", n, codes.Code(code))
		}
		if c := codes.Code(code); c != codes.Unavailable && c != codes.ResourceExhausted && answers[code].Load() > 0 {
			t.Errorf("answered %s", c)
		}
	}
}
