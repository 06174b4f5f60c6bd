package services_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing"
)

// maxResident bounds the memory of a flooded instance: half of the 512 MiB of Cloud Run's
// smallest one.
const maxResident = 256 << 20

// collectorsLimit is eight tenths of maxResident, where an instance on Cloud Run has nine. So the test measures the
// memory that is in use, and not the time at which the collector would run.
const collectorsLimit = "205MiB"

// flood is an instance of video with users, and what strangers and users send it.
type flood struct {
	*testing.T
	addr, url string
	users     *issuer.Issuer

	opened, cut, junk, attacks, brokenOff atomic.Int64
}

// TestFlood: an instance answers each good request while slow connections stay open, junk
// comes over both protocols, users send the requests that once took hundreds of
// megabytes, and strangers do not read their answers.
//
// LOCKSTEP_FULL=1 opens 1,000 slow connections and sends 11,000 junk requests a second for
// 15 seconds: a tenth more than the 10,000 to be refused. `make crash` sets it.
func TestFlood(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read from /proc")
	}
	slow, unread, perSecond, lasts := 100, 8, 1_000, time.Second
	if os.Getenv("LOCKSTEP_FULL") != "" {
		slow, unread, perSecond, lasts = 1_000, 40, 11_000, 15*time.Second
	}
	w := newWorld(t, startBroker(t, broker.Local))
	lis := porttest.Listen(t)
	users, err := issuer.Start(lis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = users.Close() })
	p := w.spawn(t, "video", w.videoAddr, "DATABASE_URL="+w.pg.VideoURL, "AUTH_ISSUER="+users.URL(), "AUTH_AUDIENCE="+issuer.Audience,
		"GOMEMLIMIT="+collectorsLimit)
	p.ready(t)
	f := &flood{T: t, addr: w.videoAddr, url: "http://" + w.videoAddr, users: users}
	f.good(0) // fills pools and caches
	calm, before := f.good(lasts/5), p.resident(t)

	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	f.openSlow(ctx, &all, slow)
	eventually(t, "the slow connections are open", func() bool { return f.opened.Load() >= int64(slow) })
	began := time.Now()
	f.sendJunk(ctx, &all, perSecond)
	f.attack(ctx, &all)
	answered := f.good(lasts)
	eventually(t, "each kind of attack was sent", func() bool { return f.junk.Load() >= int64(perSecond) && f.attacks.Load() >= 5 })
	took := time.Since(began)
	stop()
	all.Wait()
	flooded := p.resident(t)
	unreading := f.goodWhileUnread(unread, lasts)

	peak := p.resident(t)
	t.Logf("%d good requests answered in %s, p50 %s, p99 %s, slowest %s; alone p50 %s, p99 %s", len(answered), took.Round(time.Millisecond),
		at(answered, 50), at(answered, 99), at(answered, 100), at(calm, 50), at(calm, 99))
	t.Logf("%d slow connections (%d opened, %d cut off), %d junk requests refused (%.0f a second), %d costly ones",
		slow, f.opened.Load(), f.cut.Load(), f.junk.Load(), float64(f.junk.Load())/took.Seconds(), f.attacks.Load())
	t.Logf("%d good requests answered while %d answers were not read, p50 %s, p99 %s", len(unreading), f.brokenOff.Load(), at(unreading, 50), at(unreading, 99))
	t.Logf("peak of resident memory %d MiB, before the flood %d MiB, before the unread answers %d MiB", peak>>20, before>>20, flooded>>20)
	if peak > maxResident {
		t.Errorf("%d MiB of memory, want at most %d", peak>>20, maxResident>>20)
	}
	f.good(0) // the instance has recovered
}

// token is that of a new user, unless one is given.
func (f *flood) token() string {
	token, err := f.users.Mint(eventing.DefaultTenant, uuid.New())
	if err != nil {
		f.Error(err)
	}
	return "Bearer " + token
}

// good sends requests of a user, writes and reads in turns and fifty a second at most, for
// that time, and 20 of them at least. It expects an answer to each, and returns their
// times, the shortest first.
func (f *flood) good(lasts time.Duration) (times []time.Duration) {
	f.Helper()
	client := &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	user := uuid.New()
	token, err := f.users.Mint(eventing.DefaultTenant, user)
	if err != nil {
		f.Fatal(err)
	}
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	video := ""
	for ends := time.Now().Add(lasts); len(times) < 20 || time.Now().Before(ends); {
		<-pace.C
		method, path, body, want := http.MethodGet, "/v1/videos/"+video, fields(nil), http.StatusOK
		if len(times)%2 == 0 {
			method, path, body, want = http.MethodPost, "/v1/videos", fields{"uploader_id": user, "title": "good"}, http.StatusCreated
		}
		began := time.Now()
		a, err := request(f.Context(), client, method, f.url+path, http.Header{"Authorization": {"Bearer " + token}}, body)
		if err != nil || a.code != want {
			f.Fatalf("good request %d: %s %s: %d %s, %v", len(times), method, path, a.code, a.Reason, err)
		}
		video, times = a.ID, append(times, time.Since(began))
	}
	slices.Sort(times)
	return times
}

// at is the time within which that share of the requests was answered.
func at(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)-1)*percent/100].Round(10 * time.Microsecond)
}

var highWater = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// resident is the most memory that p has had so far, in bytes.
func (p *spawned) resident(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := highWater.FindSubmatch(status)
	if found == nil {
		t.Fatalf("no VmHWM in %s", status)
	}
	kb, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}
